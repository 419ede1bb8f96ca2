package auth

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/execwire/execwire/internal/secretfile"
)

// Table says who is let in by what, and what each may do. [ReadTable] makes
// one. It does not change and may be used concurrently.
type Table struct {
	entries []entry
	byName  map[string]int
	hashes  []TokenHash // of entries[owners[i]]
	owners  []int
	by      map[selector]int // whom a credential belongs to
	jwt     *JWT             // nil takes no signed tokens
	// websocket are tokens of [Websocket] that the table does not have; nil if
	// there are none.
	websocket *websocketTokens
	now       func() time.Time
}

// entry is one principal.
type entry struct {
	name       string
	may        Permissions
	onBehalfOf []string
	actAs      []string // patterns of executors
	connectTo  []string // patterns of executors
}

// selector is one credential that is not a token.
type selector struct{ kind, value string }

// Kinds of selectors, as a table and its errors call them.
const (
	byCertificate = "certificates"
	byUser        = "unix_users"
	byLoopback    = "loopback"
	bySubject     = "jwt_subjects"
)

// TableError says what is wrong with a table of principals.
type TableError struct {
	// File is the table.
	File string
	// Entry is where in it: the name of a principal, or "jwt"; empty when it is
	// about the file.
	Entry string
	// Problem is what is wrong.
	Problem string
	// Fix is what to do about it; may be empty.
	Fix string
	// Err is the reason, if there is one.
	Err error
}

func (e *TableError) Error() string {
	text := "principals file " + e.File + ": "
	if e.Entry != "" {
		text += e.Entry + ": "
	}
	text += e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// Unwrap returns the reason.
func (e *TableError) Unwrap() error { return e.Err }

// document is the TOML of a table.
type document struct {
	Principals []principalTable `toml:"principal"`
	JWT        *jwtTable        `toml:"jwt"`
}

type principalTable struct {
	Name         string   `toml:"name"`
	TokenFile    string   `toml:"token_file"`
	TokenSHA256  string   `toml:"token_sha256"`
	Certificates []string `toml:"certificates"`
	UnixUsers    []string `toml:"unix_users"`
	Loopback     bool     `toml:"loopback"`
	JWTSubjects  []string `toml:"jwt_subjects"`
	Allow        []string `toml:"allow"`
	OnBehalfOf   []string `toml:"on_behalf_of"`
	ActAs        []string `toml:"act_as_executors"`
	ConnectTo    []string `toml:"connect_to_executors"`
}

type jwtTable struct {
	HS256SecretFile    string `toml:"hs256_secret_file"`
	EdDSAPublicKeyFile string `toml:"eddsa_public_key_file"`
	Issuer             string `toml:"issuer"`
	Audience           string `toml:"audience"`
	MaxClockSkew       string `toml:"max_clock_skew"`
}

// ReadTable reads the table at file and what it refers to. It also returns the
// files that it read or failed to read, with an error too. The error is a
// [*TableError].
func ReadTable(file string) (table *Table, files []string, err error) {
	r := &tableReader{
		file: file, files: []string{file},
		table: &Table{byName: map[string]int{}, by: map[selector]int{}, now: time.Now},
	}
	if err := r.read(); err != nil {
		return nil, r.files, err
	}
	return r.table, r.files, nil
}

// tableReader fills a table.
type tableReader struct {
	file  string
	files []string
	table *Table
}

func (r *tableReader) read() error {
	text, err := secretfile.Public(r.file)
	if err != nil {
		return &TableError{File: r.file, Problem: "it cannot be used", Err: err}
	}
	var doc document
	meta, err := toml.Decode(string(text), &doc)
	if err != nil {
		return &TableError{File: r.file, Problem: "it is not TOML of a table of principals", Err: err}
	}
	if err := r.checkKeys(meta.Keys()); err != nil {
		return err
	}
	if err := r.readJWT(doc.JWT); err != nil {
		return err
	}
	if len(doc.Principals) == 0 {
		return &TableError{File: r.file, Problem: "it lists nobody", Fix: "add a [[principal]], or set no principals_file"}
	}
	for i, p := range doc.Principals {
		if err := r.readPrincipal(i, p); err != nil {
			return err
		}
	}
	return nil
}

// wrong is an error about an entry.
func (r *tableReader) wrong(entry, fix, problem string, args ...any) error {
	return &TableError{File: r.file, Entry: entry, Problem: fmt.Sprintf(problem, args...), Fix: fix}
}

func (r *tableReader) readPrincipal(i int, p principalTable) error {
	if problem := badName(p.Name); problem != "" {
		return r.wrong(fmt.Sprintf("principal %d", i+1), "give it another", "the name %.140q %s", p.Name, problem)
	}
	if _, taken := r.table.byName[p.Name]; taken {
		return r.wrong(p.Name, "rename one of them", "there are two principals of that name")
	}
	may, unknown, ok := ParsePermissions(p.Allow)
	switch {
	case !ok:
		return r.wrong(p.Name, "choose from "+strings.Join(permissionNames, ", ")+" and all", "allow has %q, which is no permission", unknown)
	case may == 0 && len(p.ActAs) == 0 && len(p.ConnectTo) == 0:
		return r.wrong(p.Name, "write what it may do, for example allow = [\"view\"]", "allow is missing or empty")
	}
	for _, list := range []struct {
		key, example string
		patterns     []string
	}{
		{"on_behalf_of", "user:*", p.OnBehalfOf},
		{"act_as_executors", "build-*", p.ActAs},
		{"connect_to_executors", "build-*", p.ConnectTo},
	} {
		if i := slices.IndexFunc(list.patterns, isNoPattern); i >= 0 {
			return r.wrong(p.Name, fmt.Sprintf("write names with * for any text, for example %q", list.example),
				"%s has %q, which is no pattern of names", list.key, list.patterns[i])
		}
	}
	r.table.byName[p.Name] = len(r.table.entries)
	r.table.entries = append(r.table.entries, entry{name: p.Name, may: may, onBehalfOf: p.OnBehalfOf, actAs: p.ActAs, connectTo: p.ConnectTo})
	return r.readCredentials(p)
}

// isNoPattern reports whether text is no pattern of names.
func isNoPattern(text string) bool {
	_, err := path.Match(text, "")
	return err != nil || text == "" || strings.Contains(text, "/")
}

// maxNameBytes bounds the names of principals.
const maxNameBytes = 128

// badName says what is wrong with a name; empty if it is right. The slash is
// left out for the names of those that somebody else acts for.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxNameBytes:
		return fmt.Sprintf("has more than %d bytes", maxNameBytes)
	case strings.Contains(name, "/"):
		return "contains a slash"
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsGraphic(c) }):
		return "contains what cannot be printed"
	case slices.Contains([]string{InProcess.Name, Principal{}.String()}, name):
		return "is taken by execwire itself"
	}
	return ""
}
