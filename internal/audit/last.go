package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// Last returns the last lines of the log and its rotated files, the oldest first: at most
// count, with at most size bytes together. Lines that are no JSON, as a crash leaves them, are
// left out. It does not make records wait. A file that cannot be read is an error.
func (l *Log) Last(count int, size int64) ([]string, error) {
	var newest []string // first
	var before os.FileInfo
	for i := 0; i <= l.opts.Keep && len(newest) < count && size > 0; i++ {
		path := l.opts.File
		if i > 0 {
			path = l.rotated(i)
		}
		content, info, err := readEnd(path, size)
		switch {
		case errors.Is(err, fs.ErrNotExist) && i > 0:
			slices.Reverse(newest)
			return newest, nil
		case errors.Is(err, fs.ErrNotExist): // another program has renamed it
			continue
		case err != nil:
			return nil, err
		case before != nil && os.SameFile(before, info): // it was rotated meanwhile
			continue
		}
		before = info
		for end := len(content); end > 0 && len(newest) < count; {
			begin := bytes.LastIndexByte(content[:end], '\n') + 1
			if line := content[begin:end]; json.Valid(line) {
				newest = append(newest, string(line))
			}
			end = begin - 1
		}
		size -= int64(len(content))
	}
	slices.Reverse(newest)
	return newest, nil
}

// readEnd reads the end of a file.
func readEnd(path string, most int64) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	begin := max(0, info.Size()-most)
	content, err := io.ReadAll(io.NewSectionReader(f, begin, info.Size()-begin))
	return content, info, err
}
