//go:build unix

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// elasticmq is ElasticMQ, an SQS server for a single machine, run from its Maven jars.
type elasticmq struct{ port int }

//go:embed elasticmq.conf
var elasticmqConf string

func (e elasticmq) About() about {
	return about{Name: "elasticmq", Title: "ElasticMQ", Env: "TXONCE_SQS", Address: fmt.Sprintf("http://127.0.0.1:%d",
		e.port)}
}

// Healthy lists the queues with SQS's JSON protocol. ElasticMQ does not check signatures.
func (e elasticmq) Healthy(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/", strings.NewReader(`{"MaxResults":1}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !json.Valid(body) {
		return fmt.Errorf("ListQueues: %s: %.200q", resp.Status, body)
	}
	return nil
}

func (e elasticmq) Needs() []program { return forMaven }

func (e elasticmq) Prepare(ctx context.Context, dir string) (process, error) {
	jars, err := fetchJars(ctx, "elasticmq")
	if err != nil {
		return process{}, err
	}
	conf := filepath.Join(dir, "elasticmq.conf")
	text := strings.ReplaceAll(elasticmqConf, "$PORT", fmt.Sprint(e.port))
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return process{}, err
	}
	return process{Args: elasticMQArgs(jars, conf), Stop: syscall.SIGTERM}, nil
}

func elasticMQArgs(jars, conf string) []string {
	return []string{
		"java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"),
		"-Dconfig.file=" + conf, "org.elasticmq.server.Main",
	}
}
