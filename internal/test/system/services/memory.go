//go:build unix

package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
)

// Servers and tests write and sync much, and nothing that they write has to survive a loss of power. Their files are in
// memory where there is room: then a sync costs nothing, and `make test` takes two thirds of the processor's time. What
// a killed process leaves behind is the same in memory and on a disk.
const (
	memoryFolder = "/dev/shm"
	memoryRoom   = 6 << 30 // bytes; all servers and a run of the tests take less than half of it
)

// memory returns a folder in memory that has room and where programs may be executed, or "".
func memory() string {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil || !mountedForPrograms(string(mounts), memoryFolder) {
		return ""
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryFolder, &fs); err != nil || uint64(fs.Bavail)*uint64(fs.Bsize) < memoryRoom {
		return ""
	}
	return memoryFolder
}

// mountedForPrograms reports whether folder is a tmpfs without the option noexec. mounts is the text of /proc/mounts,
// where a later line hides an earlier one.
func mountedForPrograms(mounts, folder string) (yes bool) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == folder {
			yes = f[2] == "tmpfs" && !slices.Contains(strings.Split(f[3], ","), "noexec")
		}
	}
	return yes
}

// dataFolder makes a folder for a server's data: in memory, or else in dir. outside is the folder if it is not in dir.
func dataFolder(dir, name string) (data, outside string, err error) {
	if parent := memory(); parent != "" {
		data, err = os.MkdirTemp(parent, "txonce-"+name+"-")
		return data, data, err
	}
	return dir, "", nil
}
