package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/execwire/execwire/cmd/execwire/internal/display"
)

// printJSON prints an object on one line.
func printJSON(w io.Writer, object any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}

// The forms of text and of sizes that packages of commands have, too.
var (
	printable = display.Printable
	byteCount = display.Bytes
)

// listing prints the objects of a list: as JSON, or as a table.
type listing struct {
	out    *os.File
	asJSON bool
	rows   [][]string // the first is the header
}

func newListing(std streams, asJSON bool, header ...string) *listing {
	return &listing{out: std.out, asJSON: asJSON, rows: [][]string{header}}
}

func (l *listing) add(object any, row ...string) error {
	if l.asJSON {
		return printJSON(l.out, object)
	}
	l.rows = append(l.rows, row)
	return nil
}

// end prints the table: in columns on a terminal, cut to its width, otherwise with tabs
// between fields.
func (l *listing) end() error {
	if l.asJSON {
		return nil
	}
	var lines []string
	if width, _, err := term.GetSize(int(l.out.Fd())); err == nil {
		lines = alignColumns(l.rows, width)
	} else {
		for _, row := range l.rows {
			lines = append(lines, strings.Join(row, "\t"))
		}
	}
	return printLine(l.out, strings.Join(lines, "\n"))
}

// alignColumns formats rows, without control characters, as lines of at most width
// characters; 0 is no limit.
func alignColumns(rows [][]string, width int) []string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range lines {
		if width > 0 {
			lines[i] = truncate(lines[i], width)
		}
	}
	return lines
}

func truncate(line string, width int) string {
	if characters := []rune(line); len(characters) > width {
		return string(characters[:max(0, width-1)]) + "…"
	}
	return line
}

func pluralize(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// sanitize removes control characters, for example of file names, from a message.
func sanitize(message string) string {
	var text strings.Builder
	for _, r := range strings.ToValidUTF8(message, string(utf8.RuneError)) {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			text.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		text.WriteString(quoted[1 : len(quoted)-1])
	}
	return text.String()
}

// outputName returns a name for output: raw, but without control characters for a
// terminal.
func outputName(out *os.File, name string) string {
	if term.IsTerminal(int(out.Fd())) {
		return printable(name)
	}
	return name
}

func printLine(out io.Writer, line string) error {
	_, err := io.WriteString(out, line+"\n")
	return err
}

// age formats a duration in its largest unit.
func age(since time.Duration) string {
	switch since = max(since, 0); {
	case since < time.Minute:
		return fmt.Sprintf("%ds", int(since.Seconds()))
	case since < time.Hour:
		return fmt.Sprintf("%dm", int(since.Minutes()))
	case since < 48*time.Hour:
		return fmt.Sprintf("%dh", int(since.Hours()))
	default:
		return fmt.Sprintf("%dd", int(since.Hours()/24))
	}
}

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// commandLine quotes argv for a shell, without control characters.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		switch {
		case plainWord.MatchString(word):
			words[i] = word
		case strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }):
			quoted := strconv.Quote(word)
			words[i] = "$'" + strings.NewReplacer(`\"`, `"`, `'`, `\'`).Replace(quoted[1:len(quoted)-1]) + "'"
		default:
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
