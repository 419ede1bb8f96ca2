package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
)

func ExampleClient_WriteFile() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "notes")
	if err := c.WriteFile(ctx, path, []byte("remember the milk")); err != nil {
		fmt.Println(err)
		return
	}
	content, err := c.ReadFile(ctx, path)
	fmt.Printf("%s, %v\n", content, err)

	_, err = c.Stat(ctx, path+".old")
	fmt.Println("there is no older one:", errors.Is(err, fs.ErrNotExist))
	// Output:
	// remember the milk, <nil>
	// there is no older one: true
}

// An upload of any size resumes after a lost connection.
func ExampleClient_Upload() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "data")
	if _, err := c.Upload(ctx, path, strings.NewReader("a large file"), client.UploadOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Download(ctx, path, os.Stdout, client.DownloadOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output: a large file
}

// This client can read everything and change nothing.
func ExampleClient_WithSandbox() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	careful := c.WithSandbox(client.Sandbox{}.Policy())
	_, err = careful.ReadDir(ctx, dir)
	fmt.Println("may list files:", err == nil)
	err = careful.WriteFile(ctx, filepath.Join(dir, "notes"), nil)
	fmt.Println("may write a file:", err == nil)
	_, err = careful.Output(ctx, client.Command{Argv: []string{"touch", "notes"}, Dir: dir})
	fmt.Println("may run what writes one:", err == nil)
	// Output:
	// may list files: true
	// may write a file: false
	// may run what writes one: false
}
