//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// portsFree fails if another process uses one of the server's ports. The error names the port, the process, and what to
// do. It waits a few seconds first, in case a server is just stopping.
func portsFree(ctx context.Context, s server) error {
	about := s.About()
	ports := append([]string{portOf(about.Address)}, about.Ports...)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var taken string
	for range 25 {
		if taken = firstTaken(ports); taken == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return fmt.Errorf("%s: port %s of 127.0.0.1 is held by %s, which is not a healthy %s; end that process, or set %s to where a %s of your own is",
		about.Name, taken, holder(taken), about.Title, about.Env, about.Title)
}

// firstTaken returns the first of ports that a process listens on, or "".
func firstTaken(ports []string) string {
	for _, port := range ports {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), time.Second)
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return port
		}
	}
	return ""
}

// holder names the process that listens on port, if this user may see it.
func holder(port string) string {
	const unknown = "another process"
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return unknown
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		inode := listening(table, fmt.Sprintf(":%04X", n))
		if inode == "" {
			continue
		}
		sockets, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, fd := range sockets {
			if target, err := os.Readlink(fd); err != nil || target != "socket:["+inode+"]" {
				continue
			}
			pid := strings.Split(fd, "/")[2]
			command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			words := strings.Split(strings.TrimRight(string(command), "\x00"), "\x00")
			return fmt.Sprintf("process %s (%.80s)", pid, strings.Join(words, " "))
		}
	}
	return unknown
}

// listening returns the inode of the socket that listens on a port, from one of Linux's tables, or "".
func listening(table, port string) (inode string) {
	f, err := os.Open(table)
	if err != nil {
		return "" // not Linux
	}
	defer f.Close()
	const stateListen = "0A"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[3] == stateListen &&
			strings.HasSuffix(fields[1], port) {
			return fields[9]
		}
	}
	return ""
}
