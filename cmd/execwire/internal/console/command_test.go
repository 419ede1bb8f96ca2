//go:build linux

package console

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Other users cannot read the link: neither in the arguments of the browser, nor in its file.
func TestOpenLink_KeepsTheLinkSecret(t *testing.T) {
	bin := t.TempDir()
	seen := filepath.Join(bin, "seen")
	script := "#!/bin/sh\necho \"$@\" >" + seen + ".new; mv " + seen + ".new " + seen + "\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	const link = "http://127.0.0.1:1/#token=secret"
	dir, err := openLink(link)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var arguments []byte
	for end := time.Now().Add(time.Minute); len(arguments) == 0; time.Sleep(time.Millisecond) {
		if arguments, _ = os.ReadFile(seen); time.Now().After(end) {
			t.Fatal("xdg-open was not started")
		}
	}
	location, err := url.Parse(strings.TrimSpace(string(arguments)))
	if err != nil || location.Scheme != "file" || strings.Contains(string(arguments), "secret") {
		t.Fatalf("xdg-open %s, %v", arguments, err)
	}
	page, err := os.ReadFile(location.Path)
	if err != nil || !strings.Contains(string(page), `url=`+link+`"`) {
		t.Errorf("%s: %s, %v", location.Path, page, err)
	}
	for _, path := range []string{location.Path, dir} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
