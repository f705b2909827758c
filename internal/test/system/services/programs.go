//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compilerAndBrowser is what tests need besides Go and servers: a C compiler for the race detector, and a browser for
// internal/test/system/browser.
func compilerAndBrowser(ctx context.Context) []need {
	compiler := "gcc"
	if out, err := exec.CommandContext(ctx, "go", "env", "CC").Output(); err == nil {
		compiler = strings.Fields(string(out) + " gcc")[0]
	}
	return []need{
		{"the race detector", program{compiler, "gcc libc6-dev"}},
		{"internal/test/system/browser", program{"chromium", "chromium"}},
		{"tests that set a server's clock", program{"faketime", "faketime"}},
	}
}

// debezium is what internal/test/system/debezium needs, which only make test-all runs.
var debezium = []need{
	{"internal/test/system/debezium", program{"javac", "default-jdk-headless"}},
	{"internal/test/system/debezium", program{"mvn", "maven"}},
}

// programs installs what `make test` needs, or names all of it. Some tests start servers of their own, which they kill:
// the programs of these must be on this machine also when the shared servers run elsewhere, in Docker or in another
// checkout.
func programs(ctx context.Context, more []need) error {
	needs := append(compilerAndBrowser(ctx), more...)
	for _, s := range known {
		if _, err := readProcess(filepath.Join(state, s.About().Name)); err == nil {
			continue // this checkout has started it with its programs
		}
		for _, p := range s.Needs() {
			needs = append(needs, need{s.About().Name, p})
		}
		if p, ok := s.(postgres); ok && p.major == 15 && p.installed() == "" {
			// jars are unpacked for the shared server only
			needs = append(needs, need{s.About().Name, program{"/usr/lib/postgresql/15/bin/initdb", "postgresql"}})
		}
	}
	if err := install(ctx, needs); err != nil {
		return err
	}
	return writeElasticMQ(ctx)
}

// elasticMQFile says how tests run an ElasticMQ of their own. internal/test/testdb reads it.
const elasticMQFile = "elasticmq.json"

func writeElasticMQ(ctx context.Context) error {
	jars, err := fetchJars(ctx, "elasticmq")
	if err != nil {
		return err
	}
	text, err := json.Marshal(process{Args: elasticMQArgs(jars, "")})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(state, elasticMQFile), text, 0o644)
}
