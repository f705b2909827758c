//go:build unix

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// kafka is an Apache Kafka node in KRaft mode, broker and controller in one process, run from its Maven jars.
type kafka struct{ port, controllerPort int }

//go:embed kafka.properties
var kafkaProperties string

// kafkaCluster is an arbitrary cluster id. A fixed one saves starting a JVM to generate it.
const kafkaCluster = "dHhvbmNlLXRlc3RzLTAwMQ"

func (k kafka) About() about {
	return about{Name: "kafka", Title: "Apache Kafka", Env: "TXONCE_KAFKA", Address: fmt.Sprintf("127.0.0.1:%d",
		k.port), Ports: []string{fmt.Sprint(k.controllerPort)}}
}

// Healthy validates the creation of a topic, which the broker forwards to the controller.
func (k kafka) Healthy(ctx context.Context, address string) error {
	cfg := sarama.NewConfig()
	cfg.ClientID = "txonce-services"
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout = 2*time.Second, 10*time.Second, 10*time.Second
	cfg.Metadata.Retry.Max, cfg.Admin.Retry.Max = 0, 0
	cfg.Admin.Timeout = 8 * time.Second
	admin, err := sarama.NewClusterAdmin(strings.Split(address, ","), cfg)
	if err != nil {
		return err
	}
	err = admin.CreateTopic("txonce-health", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, true)
	return errors.Join(err, admin.Close())
}

func (k kafka) Needs() []program { return forMaven }

func (k kafka) Prepare(ctx context.Context, dir string) (process, error) {
	jars, err := fetchJars(ctx, "kafka")
	if err != nil {
		return process{}, err
	}
	data, outside, err := dataFolder(dir, "kafka")
	failed := func(err error) (process, error) { return process{Outside: outside}, err }
	if err != nil {
		return failed(err)
	}
	properties := filepath.Join(dir, "server.properties")
	text := strings.NewReplacer(
		"$PORT", fmt.Sprint(k.port), "$CONTROLLER", fmt.Sprint(k.controllerPort), "$DATA", filepath.Join(data, "data"),
	).Replace(kafkaProperties)
	if err := os.WriteFile(properties, []byte(text), 0o644); err != nil {
		return failed(err)
	}
	java := []string{"java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*")}
	format := append(java[1:len(java):len(java)], "kafka.tools.StorageTool", "format", "-t", kafkaCluster, "-c",
		properties)
	if out, err := exec.CommandContext(ctx, java[0], format...).CombinedOutput(); err != nil {
		return failed(fmt.Errorf("kafka.tools.StorageTool format: %w\n%s", err, out))
	}
	return process{Args: append(java, "kafka.Kafka", properties), Stop: syscall.SIGTERM, Outside: outside}, nil
}
