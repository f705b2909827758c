// Package address finds the servers of make services-up, without any driver.
package address

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Lookup returns the value of a variable, such as TXONCE_KAFKA, in the environment or in root/.services/env. It is
// empty if neither has one.
func Lookup(root, variable string) (string, error) {
	if v := os.Getenv(variable); v != "" {
		return v, nil
	}
	f, err := os.Open(filepath.Join(root, ".services", "env"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), "="); name == variable {
			return unquoted(value), nil
		}
	}
	return "", lines.Err()
}

// unquoted removes the quotes that protect a value in .services/env from shells.
func unquoted(value string) string {
	if inner, quoted := strings.CutPrefix(value, "'"); quoted {
		return strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `'\''`, "'")
	}
	return value
}
