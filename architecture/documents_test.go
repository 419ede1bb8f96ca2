package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	documentLink = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	documentHead = regexp.MustCompile("(?m)^#+ (.*)$")
	documentID   = regexp.MustCompile(`<a id="([^"]+)">`)
	documentCode = regexp.MustCompile("`([a-z][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)+)/?`")
)

// TestDocuments_LinksLeadToFilesAndHeadings checks every relative link of the documents.
func TestDocuments_LinksLeadToFilesAndHeadings(t *testing.T) {
	known := map[string]map[string]bool{} // the anchors of a document
	for _, document := range documents(t) {
		for _, link := range documentLink.FindAllStringSubmatch(readDocument(t, document), -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			target := document
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(document), link[1])
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", document, link[1])
				continue
			}
			if link[2] == "" || !strings.HasSuffix(target, ".md") {
				continue
			}
			if known[target] == nil {
				known[target] = anchors(readDocument(t, target))
			}
			if !known[target][link[2]] {
				t.Errorf("%s links to #%s of %s, which has no such heading", document, link[2], target)
			}
		}
	}
}

// TestIndex_NamesFilesThatExist checks that the paths in docs/README.md exist, and that the
// index has every document.
func TestIndex_NamesFilesThatExist(t *testing.T) {
	const index = "docs/README.md"
	text := readDocument(t, index)
	paths := documentCode.FindAllStringSubmatch(text, -1)
	if len(paths) < 30 {
		t.Fatalf("%s names only %d files", index, len(paths))
	}
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
			t.Errorf("%s names %s, which does not exist", index, path[1])
		}
	}
	for _, document := range documents(t) {
		if name, found := strings.CutPrefix(document, "docs/"); found && !strings.Contains(name, "/") &&
			document != index && !strings.Contains(text, "]("+name+")") {
			t.Errorf("%s does not list %s", index, document)
		}
	}
}

// TestIndex_NamesEveryPackage checks that docs/README.md or docs/architecture.md says where each package
// belongs. Examples and integration tests have documents of their own.
func TestIndex_NamesEveryPackage(t *testing.T) {
	source, err := repositoryTree()
	if err != nil {
		t.Fatal(err)
	}
	text := readDocument(t, "docs/README.md") + readDocument(t, "docs/architecture.md")
	checked := map[string]bool{".": true}
	for _, file := range source.files {
		if top, _, _ := strings.Cut(file.dir, "/"); checked[file.dir] || file.test || slices.Contains([]string{"examples", "integration"}, top) {
			continue
		}
		checked[file.dir] = true
		if !strings.Contains(text, "`"+file.dir+"`") && !strings.Contains(text, "`"+file.dir+"/") {
			t.Errorf("neither docs/README.md nor docs/architecture.md names %s", file.dir)
		}
	}
}

// TestDocuments_NameGoFilesThatExist checks every path of a Go file in any document.
func TestDocuments_NameGoFilesThatExist(t *testing.T) {
	for _, document := range documents(t) {
		for _, path := range documentCode.FindAllStringSubmatch(readDocument(t, document), -1) {
			if !strings.HasSuffix(path[1], ".go") {
				continue
			}
			fromRoot, beside := filepath.Join("..", path[1]), filepath.Join("..", filepath.Dir(document), path[1])
			if _, err := os.Stat(fromRoot); err == nil {
				continue
			}
			if _, err := os.Stat(beside); err != nil {
				t.Errorf("%s names %s, which does not exist", document, path[1])
			}
		}
	}
}

// TestDecisions_AreShort limits each record to 60 lines and requires its three sections.
func TestDecisions_AreShort(t *testing.T) {
	records, err := filepath.Glob("../docs/decisions/0*.md")
	if err != nil || len(records) == 0 {
		t.Fatalf("no records: %v", err)
	}
	list := readDocument(t, "docs/decisions/README.md")
	for _, record := range records {
		text := readDocument(t, strings.TrimPrefix(record, "../"))
		if lines := strings.Count(text, "\n"); lines > 60 {
			t.Errorf("%s has %d lines", record, lines)
		}
		for _, section := range []string{"\n## Context\n", "\n## Decision\n", "\n## Consequences\n"} {
			if !strings.Contains(text, section) {
				t.Errorf("%s has no section %q", record, strings.TrimSpace(section))
			}
		}
		if !strings.Contains(list, "("+filepath.Base(record)+")") {
			t.Errorf("docs/decisions/README.md does not list %s", record)
		}
	}
}

// anchors are the fragments that GitHub makes of a document's headings, and those of its elements.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, element := range documentID.FindAllStringSubmatch(text, -1) {
		found[element[1]] = true
	}
	times := map[string]int{}
	for _, heading := range documentHead.FindAllStringSubmatch(text, -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])
		if n := times[anchor]; n > 0 { // the same heading once more
			found[fmt.Sprintf("%s-%d", anchor, n)] = true
		}
		found[anchor] = true
		times[anchor]++
	}
	return found
}

// documents are the Markdown files of the repository, without those of dependencies.
func documents(t *testing.T) []string {
	t.Helper()
	skipped := []string{".git", ".cache", "node_modules", "testdata", "dist", "build"}
	var list []string
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains(skipped, entry.Name()) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
