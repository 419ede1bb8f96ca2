// Command upload makes a directory of another machine a copy of a local one, and shows the
// progress. A lost connection does not end it: it continues where the server has received
// everything.
//
//	upload tcp://127.0.0.1:7420 ~/src/project /srv/project
package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/term"

	"github.com/execwire/execwire/client"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: upload URL DIRECTORY PATH")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := upload(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "upload:", err)
		os.Exit(1)
	}
}

func upload(ctx context.Context, url, directory, path string) error {
	total, err := size(directory)
	if err != nil {
		return err
	}
	machine, err := client.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer machine.Close()
	end := "\n"
	if term.IsTerminal(int(os.Stderr.Fd())) {
		end = "\033[K\r" // one line, which changes
	}
	// With "/." it is the content of the directory, also if it is a link.
	done, err := machine.Push(ctx, filepath.Clean(directory)+"/.", path, client.TransferOptions{
		Recursive: true,
		Preserve:  true,
		OnProgress: func(p client.TransferProgress) {
			fmt.Fprintf(os.Stderr, "%d of %d bytes: %s%s", p.Bytes+p.MovingBytes, total, p.Path, end)
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d files copied, %d bytes\n", done.Files, done.Bytes)
	return nil
}

// size returns how many bytes the files of a directory have.
func size(directory string) (total int64, err error) {
	err = filepath.WalkDir(directory, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
