// Command web bundles the console: from the sources in web to gen/web, which is embedded in
// the execwire command. make generate runs it.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

// maxBytes is the most that the page may have, compressed.
const maxBytes = 400 << 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// run bundles the sources of the repository at the first argument.
func run(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("usage: web ROOT [DIRECTORY], the root of the repository, and where in it to write instead of gen/web")
	}
	root, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	to := filepath.Join(root, "gen/web")
	if len(args) == 2 {
		to = filepath.Join(root, args[1])
	}
	assets, err := bundle(root)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(root, "web/src/index.html"))
	if err != nil {
		return err
	}
	assets["index.html"] = page
	total := 0
	for name, content := range assets {
		compressed, err := compress(content)
		if err != nil {
			return err
		}
		total += len(compressed)
		if err := os.WriteFile(filepath.Join(to, name+".gz"), compressed, 0o644); err != nil {
			return err
		}
	}
	if total > maxBytes {
		return fmt.Errorf("the page has %d bytes compressed, and may have %d", total, maxBytes)
	}
	return nil
}

// bundle returns the script and the style sheet.
func bundle(root string) (map[string][]byte, error) {
	result := api.Build(api.BuildOptions{
		AbsWorkingDir:     root,
		EntryPoints:       []string{"web/src/main.tsx"},
		Outfile:           "console.js",
		Bundle:            true,
		Format:            api.FormatESModule,
		Platform:          api.PlatformBrowser,
		Target:            api.ES2022,
		Alias:             map[string]string{"execwire": "./sdk/typescript/dist/index.js", "execwire/v1": "./sdk/typescript/dist/gen/v1.js"},
		Loader:            map[string]api.Loader{".css": api.LoaderCSS},
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		LegalComments:     api.LegalCommentsEndOfFile,
		LogLevel:          api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return nil, fmt.Errorf("%d errors: is sdk/typescript built, and what web/package.json names installed?", len(result.Errors))
	}
	assets := map[string][]byte{}
	for _, file := range result.OutputFiles {
		assets[filepath.Base(file.Path)] = file.Contents
	}
	return assets, nil
}

// compress returns the content as gzip, the same for the same content.
func compress(content []byte) ([]byte, error) {
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressed.Bytes(), nil
}
