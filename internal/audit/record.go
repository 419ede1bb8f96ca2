package audit

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the schema
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// Schema is the JSON Schema of a record.
//
//go:embed schema.json
var Schema string

// Version is the version of the schema, schema.json. It rises when a member changes its
// meaning or is removed; members may be added without that.
const Version = 1

// Type is when a record was written, relative to what it describes.
type Type string

// The types.
const (
	// Intent is an action that was allowed and follows.
	Intent Type = "intent"
	// Result is the end of the action with the same call.
	Result Type = "result"
	// Denied is an action that was denied, which has no other record.
	Denied Type = "denied"
	// Notice is what happened without a call of its own.
	Notice Type = "notice"
)

// The decisions.
const (
	DecisionAllowed = "allowed"
	DecisionDenied  = "denied"
)

// Caller is who made a call. Empty members are not known.
type Caller struct {
	// Principal is who the call is made as, and Via the principal that impersonates it, if any.
	Principal string `json:"principal,omitempty"`
	Via       string `json:"via,omitempty"`
	// Credential is the kind of credential that was shown.
	Credential string `json:"credential,omitempty"`
	// Peer is the address of the client, or the process at the other end of a unix socket.
	Peer string `json:"peer,omitempty"`
	// API is the protocol of the client.
	API string `json:"api,omitempty"`
}

// Record is one record. docs/audit.md describes the members. The zero value of a member is
// left out, except of the first four.
type Record struct {
	// When, and what it is about. Call is that of [Log.NewCall].
	Version int    `json:"version"`
	Time    string `json:"time"`
	Type    Type   `json:"type"`
	Action  string `json:"action"`
	Call    string `json:"call,omitempty"`
	Caller
	// The RPC, whether it was allowed, and by which rule.
	Method   string `json:"method,omitempty"`
	Decision string `json:"decision,omitempty"`
	Rule     string `json:"rule,omitempty"`

	// Sessions and processes.
	Session    string   `json:"session,omitempty"`
	Process    string   `json:"process,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Argv       []string `json:"argv,omitempty"`
	ArgvSHA256 string   `json:"argv_sha256,omitempty"`
	ArgvCount  int      `json:"argv_count,omitempty"`
	Cwd        string   `json:"cwd,omitempty"`
	User       string   `json:"user,omitempty"`
	Sandbox    *Sandbox `json:"sandbox_asked,omitempty"`
	Enforced   *Sandbox `json:"sandbox_enforced,omitempty"`
	Signal     string   `json:"signal,omitempty"`
	Grantee    string   `json:"grantee,omitempty"`
	Access     string   `json:"access,omitempty"`
	TookOver   bool     `json:"took_over,omitempty"`

	// Files, ports, URLs and executors.
	Path        string `json:"path,omitempty"`
	To          string `json:"to,omitempty"`
	Mode        string `json:"mode,omitempty"`
	Recursive   bool   `json:"recursive,omitempty"`
	Address     string `json:"address,omitempty"`
	URL         string `json:"url,omitempty"`
	HTTPMethod  string `json:"http_method,omitempty"`
	Executor    string `json:"executor,omitempty"`
	Description string `json:"description,omitempty"`

	// The result.
	Status         string `json:"status,omitempty"`
	Reason         string `json:"reason,omitempty"`
	Exit           *Exit  `json:"exit,omitempty"`
	BytesIn        uint64 `json:"bytes_in,omitempty"`
	BytesOut       uint64 `json:"bytes_out,omitempty"`
	DurationMicros int64  `json:"duration_us,omitempty"`
	Suppressed     uint64 `json:"suppressed,omitempty"`
	Truncated      bool   `json:"truncated,omitempty"`
}

// Sandbox is a sandbox as a request asks for it, or as it is enforced.
type Sandbox struct {
	// Policy is managed, disabled or external, as asked.
	Policy string `json:"policy,omitempty"`
	// Backend is what enforces it.
	Backend string `json:"backend,omitempty"`
	// Files and Network are restricted or unrestricted.
	Files   string `json:"files,omitempty"`
	Network string `json:"network,omitempty"`
}

// Exit is the end of a process. It has either a code or a signal, or neither if the
// status was lost.
type Exit struct {
	// How it ended. Code is nil if there is a signal, or if the status was lost.
	Code          *int   `json:"code,omitempty"`
	Signal        int    `json:"signal,omitempty"`
	Cause         string `json:"cause"`
	SandboxDenied bool   `json:"sandbox_denied,omitempty"`
}

// Bounds of a record. What is longer is cut.
const (
	// MaxLine bounds a line, in bytes with its newline.
	MaxLine = 64 << 10

	maxText     = 4096 // of a member, in bytes
	maxArgv     = 4096 // of all arguments together, in bytes
	maxArgCount = 256
	// shortText replaces maxText in a record that would exceed MaxLine because of what JSON
	// escapes: up to six bytes for one.
	shortText = 256
)

// encode returns the record as a line. It changes the record: it cuts long members.
func (r *Record) encode(now time.Time) ([]byte, error) {
	r.Version, r.Time = Version, now.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	r.cut(maxText, maxArgv)
	line, err := r.marshal()
	if err == nil && len(line) > MaxLine {
		r.cut(shortText, shortText)
		line, err = r.marshal()
	}
	return line, err
}

func (r *Record) marshal() ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(r) // with a newline
	return line.Bytes(), err
}

// cut cuts each text to most bytes, and all arguments together to mostArgv.
func (r *Record) cut(most, mostArgv int) {
	for _, text := range []*string{
		&r.Action, &r.Principal, &r.Via, &r.Peer, &r.Method, &r.Rule, &r.Session, &r.Process, &r.Cwd, &r.User, &r.Signal, &r.Grantee,
		&r.Path, &r.To, &r.Address, &r.URL, &r.HTTPMethod, &r.Executor, &r.Description, &r.Reason,
	} {
		if len(*text) > most {
			*text, r.Truncated = clip(*text, most), true
		}
	}
	kept := r.Argv[:min(len(r.Argv), maxArgCount)]
	left := mostArgv
	for i, argument := range kept {
		if len(argument) > left { // the caller's slice must not change
			kept = append(append([]string(nil), kept[:i]...), clip(argument, left))
			break
		}
		left -= len(argument)
	}
	if len(kept) < len(r.Argv) || len(kept) > 0 && len(kept[len(kept)-1]) < len(r.Argv[len(kept)-1]) {
		r.Truncated = true
	}
	r.Argv = kept
}

// clip cuts a text to at most so many bytes, not within a character.
func clip(text string, most int) string {
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.Clone(text[:most]) // a record must not keep a large request
}

// digest identifies arguments: the SHA-256 of all of them, each followed by a zero byte.
func digest(argv []string) string {
	sum := sha256.New()
	for _, argument := range argv {
		_, _ = sum.Write([]byte(argument)) // never fails
		_, _ = sum.Write([]byte{0})
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// URL returns a URL without what may be secret: user, password, query and fragment. One
// that cannot be parsed is left out.
func URL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
