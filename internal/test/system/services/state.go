//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// state is the folder for a checkout's records about its servers.
const state = ".services"

// dirOf returns a server's folder, as an absolute path.
func dirOf(s server) (string, error) {
	return filepath.Abs(filepath.Join(state, s.About().Name))
}

// Files in a server's folder.
const (
	logFile     = "log"
	processFile = "process.json" // how the server was started natively
	idsFile     = "pid"          // process ids of its keeper and of the server; locked while either runs
	dockerFile  = "docker"       // exists if docker compose started the server
)

func writeProcess(dir string, p process) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, processFile), text, 0o644)
}

func readProcess(dir string) (process, error) {
	var p process
	text, err := os.ReadFile(filepath.Join(dir, processFile))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// writeEnv writes the addresses of these servers to .services/env, also those that the user set in the environment, and
// keeps the lines of others. A missing server has no address.
func writeEnv(servers, missing []server) error {
	lines, err := envWithout(servers)
	if err != nil {
		return err
	}
	for _, s := range servers {
		address, _ := addressOf(s)
		if slices.ContainsFunc(missing, func(m server) bool { return m.About().Name == s.About().Name }) {
			address = noServer
		}
		lines = append(lines, s.About().Env+"="+shellQuoted(address))
	}
	slices.Sort(lines)
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(state, "env"), []byte(strings.Join(append(lines, ""), "\n")), 0o644)
}

// envWithout returns the lines of .services/env about other servers.
func envWithout(servers []server) ([]string, error) {
	f, err := os.Open(filepath.Join(state, "env"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []string
	for scan := bufio.NewScanner(f); scan.Scan(); {
		name, _, _ := strings.Cut(scan.Text(), "=")
		if !slices.ContainsFunc(servers, func(s server) bool { return s.About().Env == name }) {
			lines = append(lines, scan.Text())
		}
	}
	return lines, nil
}

// logTail returns the end of a server's log for an error message.
func logTail(s server) string {
	path := filepath.Join(state, s.About().Name, logFile)
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Sprintf("\nthe end of its log:\n  %s", strings.Join(lines[max(0, len(lines)-15):], "\n  "))
}
