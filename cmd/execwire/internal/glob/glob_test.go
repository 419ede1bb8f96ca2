package glob

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// tree is a list of files, whose directories exist too.
type tree []string

func (t tree) ReadDir(_ context.Context, directory string) (entries []client.DirEntry, err error) {
	for _, file := range t {
		rest, isBelow := strings.CutPrefix(file, strings.TrimSuffix(directory, "/")+"/")
		name, _, _ := strings.Cut(rest, "/")
		if isBelow && !slices.ContainsFunc(entries, func(e client.DirEntry) bool { return e.Name == name }) {
			e := client.DirEntry{Name: name, Type: execwirev1.FileType_FILE_TYPE_REGULAR}
			if strings.Contains(rest, "/") {
				e.Type = execwirev1.FileType_FILE_TYPE_DIRECTORY
			}
			entries = append(entries, e)
		}
	}
	if entries == nil {
		return nil, fs.ErrNotExist
	}
	return entries, nil
}

func (t tree) Lstat(_ context.Context, name string) (client.FileInfo, error) {
	if slices.ContainsFunc(t, func(file string) bool { return file == name || strings.HasPrefix(file, path.Clean(name)+"/") }) {
		return client.FileInfo{}, nil
	}
	return client.FileInfo{}, fs.ErrNotExist
}

func TestExpand(t *testing.T) {
	files := tree{"/etc/hosts", "/etc/host.conf", "/etc/.hostile", "/srv/b/log/1", "/srv/a/log/2", "/srv/a/x", "/w/a*", "/w/ab", "/w/[a]", "/w/a"}
	for pattern, want := range map[string][]string{
		"/etc/host*":     {"/etc/host.conf", "/etc/hosts"},
		"/etc/hosts":     {"/etc/hosts"},
		"/etc/.h*":       {"/etc/.hostile"},
		"/etc/nosuch*":   {"/etc/nosuch*"},
		"/no*/x":         {"/no*/x"},
		"/srv/*/log":     {"/srv/a/log", "/srv/b/log"},
		"/srv/*/x":       {"/srv/a/x"},
		"/srv/?/log/*":   {"/srv/a/log/2", "/srv/b/log/1"},
		"/srv/a/x/*":     {"/srv/a/x/*"},
		"/srv/a/*/":      {"/srv/a/log"}, // x is no directory
		"/srv/a/[x]/":    {"/srv/a/[x]"},
		"/w/a*":          {"/w/a*"}, // a file of this name
		"/w/[a]":         {"/w/[a]"},
		"/w/[ab]":        {"/w/a"},
		"/w/a?":          {"/w/a*", "/w/ab"},
		`/w/a\*`:         {"/w/a*"},
		"/w/[":           {"/w/["},
		"/*/hosts":       {"/etc/hosts"},
		"/et[c]/hos[t]s": {"/etc/hosts"},
		"/srv/[!b]/*":    {"/srv/a/log", "/srv/a/x"},
		"/etc/host[!.a]": {"/etc/hosts"},
		`/w/[\[!]a]`:     {"/w/[a]"},
		`/w/\[[!b]*`:     {"/w/[a]"},
	} {
		if got := Expand(t.Context(), files, "/", pattern); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
	for pattern, want := range map[string][]string{"/w/[a]/*": {"/w/[a]/b"}, "/w/[a]/[!c]": {"/w/[a]/b"}} {
		if got := Expand(t.Context(), tree{"/w/a/b", "/w/[a]/b"}, "/w/[a]", pattern); !slices.Equal(got, want) {
			t.Errorf("%s below [a]: %q, want %q", pattern, got, want)
		}
	}
}
