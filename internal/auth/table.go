package auth

import (
	"errors"
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

// Table maps credentials to principals and their permissions. It is created by
// [ReadTable], immutable, and may be used concurrently.
type Table struct {
	entries    []entry
	byName     map[string]int
	hashes     []TokenHash // of entries[owners[i]]
	owners     []int
	bySelector map[selector]int // to the index of the entry
	jwt        *JWT             // nil accepts no signed tokens
	// websocket has tokens of [Websocket] that are not in the table; nil if none.
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
	runAs      RunAs
	record     bool
}

// selector is a credential that is not a token.
type selector struct{ kind, value string }

// Kinds of selectors, as named in tables and errors.
const (
	byCertificate = "certificates"
	byUser        = "unix_users"
	byLoopback    = "loopback"
	bySubject     = "jwt_subjects"
	byIdentity    = "oidc_identities"
)

// TableError means that a table of principals is invalid.
type TableError struct {
	// File is the path of the table.
	File string
	// Line and Column are the place in the file, from 1, if it is no TOML; else 0. Columns are
	// bytes.
	Line, Column int
	// Entry is the name of a principal, or "jwt"; empty if the error is about the
	// file.
	Entry string
	// Problem is what is wrong.
	Problem string
	// Fix is what to do; may be empty.
	Fix string
	// Err is the cause; may be nil.
	Err error
}

func (e *TableError) Error() string {
	text := "principals file " + e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	text += ": "
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

// Unwrap returns the cause.
func (e *TableError) Unwrap() error { return e.Err }

// document is the TOML structure of a table.
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
	Identities   []string `toml:"oidc_identities"`
	Allow        []string `toml:"allow"`
	OnBehalfOf   []string `toml:"on_behalf_of"`
	ActAs        []string `toml:"act_as_executors"`
	ConnectTo    []string `toml:"connect_to_executors"`
	RunAs        []string `toml:"run_as"`
	Record       string   `toml:"record"`
}

type jwtTable struct {
	HS256SecretFile    string `toml:"hs256_secret_file"`
	EdDSAPublicKeyFile string `toml:"eddsa_public_key_file"`
	Issuer             string `toml:"issuer"`
	Audience           string `toml:"audience"`
	MaxClockSkew       string `toml:"max_clock_skew"`
}

// ReadTable reads a table and the files that it refers to. It also returns, even
// with an error, the files that it read or failed to read. The error is a
// [*TableError].
func ReadTable(file string) (table *Table, files []string, err error) {
	r := &tableReader{
		file: file, files: []string{file},
		table: &Table{byName: map[string]int{}, bySelector: map[selector]int{}, now: time.Now},
	}
	if err := r.read(); err != nil {
		return nil, r.files, err
	}
	return r.table, r.files, nil
}

// tableReader builds a table.
type tableReader struct {
	file  string
	files []string
	table *Table
}

func (r *tableReader) read() error {
	text, err := secretfile.Public(r.file)
	if err != nil {
		return &TableError{File: r.file, Problem: "unusable", Err: err}
	}
	var doc document
	meta, err := toml.Decode(string(text), &doc)
	if err != nil {
		invalid := &TableError{File: r.file, Problem: "not a valid table of principals", Err: err}
		if wrong, ok := errors.AsType[toml.ParseError](err); ok {
			invalid.Line, invalid.Column = wrong.Position.Line, wrong.Position.Col
		}
		return invalid
	}
	if err := r.checkKeys(meta); err != nil {
		return err
	}
	if err := r.readJWT(doc.JWT); err != nil {
		return err
	}
	if len(doc.Principals) == 0 {
		return &TableError{File: r.file, Problem: "it has no principals", Fix: "add a [[principal]], or set no principals_file"}
	}
	for i, p := range doc.Principals {
		if err := r.readPrincipal(i, p); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys rejects keys that are not exactly those of the table. The TOML
// decoder ignores case, and of two spellings of a key it takes either.
func (r *tableReader) checkKeys(meta toml.MetaData) error {
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return &TableError{File: r.file, Problem: "unknown key " + unknown[0].String(), Fix: "docs/security.md lists them"}
	}
	for _, key := range meta.Keys() {
		// Upper case first: the lower-case letter ſ also stands for s.
		if right := strings.ToLower(strings.ToUpper(key.String())); right != key.String() {
			return &TableError{File: r.file, Problem: "unknown key " + key.String(), Fix: "write " + right}
		}
	}
	return nil
}

// entryError returns an error about an entry.
func (r *tableReader) entryError(entry, fix, problem string, args ...any) error {
	return &TableError{File: r.file, Entry: entry, Problem: fmt.Sprintf(problem, args...), Fix: fix}
}

func (r *tableReader) readPrincipal(i int, p principalTable) error {
	if problem := nameProblem(p.Name); problem != "" {
		return r.entryError(fmt.Sprintf("principal %d", i+1), "give it another", "the name %.140q %s", p.Name, problem)
	}
	if _, taken := r.table.byName[p.Name]; taken {
		return r.entryError(p.Name, "rename one of them", "the name is used twice")
	}
	may, unknown, ok := ParsePermissions(p.Allow)
	switch {
	case !ok:
		return r.entryError(p.Name, "choose from "+strings.Join(permissionNames, ", ")+" and all", "allow has %q, which is not a permission", unknown)
	case may == 0 && len(p.ActAs) == 0 && len(p.ConnectTo) == 0:
		return r.entryError(p.Name, "write what it may do, for example allow = [\"view\"]", "allow is missing or empty")
	}
	for _, list := range []struct {
		key, example string
		patterns     []string
	}{
		{"on_behalf_of", "user:*", p.OnBehalfOf},
		{"act_as_executors", "build-*", p.ActAs},
		{"connect_to_executors", "build-*", p.ConnectTo},
	} {
		if i := slices.IndexFunc(list.patterns, invalidPattern); i >= 0 {
			return r.entryError(p.Name, fmt.Sprintf("write names with * for any text, for example %q", list.example),
				"%s has %q, which is not a name pattern", list.key, list.patterns[i])
		}
	}
	runAs, err := parseRunAs(p.RunAs)
	if err != nil {
		return r.entryError(p.Name, "write the name of a user of this machine, or a number, with :GROUP for another group than the user's own, or \"*\" for everybody", "%v", err)
	}
	if p.Record != "" && p.Record != recordTerminals {
		return r.entryError(p.Name, "write record = \"terminals\", or leave it out", "record is %q, which cannot be recorded", p.Record)
	}
	r.table.byName[p.Name] = len(r.table.entries)
	r.table.entries = append(r.table.entries, entry{name: p.Name, may: may, onBehalfOf: p.OnBehalfOf, actAs: p.ActAs, connectTo: p.ConnectTo, runAs: runAs, record: p.Record != ""})
	return r.readCredentials(p)
}

// recordTerminals is the value of the key record.
const recordTerminals = "terminals"

// invalidPattern reports whether text is not a valid name pattern.
func invalidPattern(text string) bool {
	_, err := path.Match(text, "")
	return err != nil || text == "" || strings.Contains(text, "/")
}

// maxNameBytes is the maximum length of a principal's name.
const maxNameBytes = 128

// nameProblem describes what is wrong with a name; empty if nothing. A slash is
// reserved for impersonated names.
func nameProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxNameBytes:
		return fmt.Sprintf("has more than %d bytes", maxNameBytes)
	case strings.Contains(name, "/"):
		return "contains a slash"
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsGraphic(c) }):
		return "contains characters that cannot be printed"
	case slices.Contains([]string{InProcess.Name, Principal{}.String()}, name):
		return "is reserved"
	}
	return ""
}
