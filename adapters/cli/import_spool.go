package cli

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool keeps keys in a file that has no name any more, so that it is gone with the process.
type spool struct {
	file *os.File
	out  *bufio.Writer
	n    int
	size []byte
}

func newSpool() (*spool, error) {
	file, err := os.CreateTemp("", "txonce-import") // only this user may read it
	if err != nil {
		return nil, fmt.Errorf("a file for the keys: %w", err)
	}
	_ = os.Remove(file.Name()) // where an open file cannot be removed, close does it
	return &spool{file: file, out: bufio.NewWriterSize(file, 1<<16)}, nil
}

func (s *spool) add(tenant, id string) error {
	for _, text := range []string{tenant, id} {
		s.size = binary.AppendUvarint(s.size[:0], uint64(len(text)))
		if _, err := s.out.Write(s.size); err != nil {
			return fmt.Errorf("keep the keys in %s: %w", os.TempDir(), err)
		}
		if _, err := s.out.WriteString(text); err != nil {
			return fmt.Errorf("keep the keys in %s: %w", os.TempDir(), err)
		}
	}
	s.n++
	return nil
}

func (s *spool) flush() error {
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("keep the keys in %s: %w", os.TempDir(), err)
	}
	return nil
}

// each calls f for all keys, in the order of add.
func (s *spool) each(f func(tenant, id string) error) error {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(s.file, 1<<16)
	read := func() (string, error) {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return "", err
		}
		text := make([]byte, n)
		_, err = io.ReadFull(in, text)
		return string(text), err
	}
	for range s.n {
		tenant, err := read()
		if err != nil {
			return fmt.Errorf("read the keys again: %w", err)
		}
		id, err := read()
		if err != nil {
			return fmt.Errorf("read the keys again: %w", err)
		}
		if err := f(tenant, id); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
	return nil
}

// errEnough ends each without an error.
var errEnough = errors.New("enough")

func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}
