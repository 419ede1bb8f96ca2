package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/secretfile"
)

// FileURL is what a signed URL of a file allows, and to whom.
type FileURL struct {
	Method  string    // HTTP method: GET or PUT
	Path    string    // absolute path of the file
	Expires time.Time // in whole seconds
	// MaxBytes is the largest upload; nil is any.
	MaxBytes *uint64
	// Principal is whose requests those by the URL are, and OnBehalfOf the name that it
	// impersonates; empty if none.
	Principal, OnBehalfOf string
}

// FileURLPrefix is the path below which files are served over HTTP.
const FileURLPrefix = "/v1/files"

// Names of the parameters of a signed URL.
const (
	fileURLExpires    = "expires"
	fileURLMaxBytes   = "max_bytes"
	fileURLPrincipal  = "principal"
	fileURLOnBehalfOf = "on_behalf_of"
	// FileURLSignature is the parameter that every signed URL has.
	FileURLSignature = "signature"
)

// FileURLKeys sign URLs of files and verify them. They may be used concurrently.
type FileURLKeys struct {
	keys *secretfile.Watched[[]fileURLKey]
}

type fileURLKey []byte

// NewFileURLKeys returns the keys in file, one in a line: the first signs, and each
// verifies. The file is reread after it changed; if the new version is invalid, onError is
// called and the previous keys stay in use. With an empty file there is one random key,
// which no other run of the program has. The error is a [*secretfile.Error].
func NewFileURLKeys(file string, onError func(error)) (*FileURLKeys, error) {
	random := make(fileURLKey, sha256.Size)
	_, _ = rand.Read(random) // never fails
	keys, err := secretfile.Watch(func() ([]fileURLKey, []string, error) {
		if file == "" {
			return []fileURLKey{random}, nil, nil
		}
		keys, err := readFileURLKeys(file)
		return keys, []string{file}, err
	}, onError, nil)
	if err != nil {
		return nil, err
	}
	return &FileURLKeys{keys: keys}, nil
}

// Prepare reads the file again, at once. apply puts its keys in use. An error changes
// nothing.
func (k *FileURLKeys) Prepare() (apply func(), err error) { return k.keys.Prepare() }

func readFileURLKeys(file string) ([]fileURLKey, error) {
	text, err := secretfile.Token(file, MinSecretBytes)
	if err != nil {
		return nil, err
	}
	var keys []fileURLKey
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) < MinSecretBytes {
			return nil, &secretfile.Error{File: file, Problem: "has a line of " + strconv.Itoa(len(line)) + " bytes; a key needs at least " + strconv.Itoa(MinSecretBytes),
				Fix: "write one random key in each line, for example with: openssl rand -hex 32"}
		}
		keys = append(keys, line)
	}
	return keys, nil
}

// Sign returns the parameters of a URL.
func (k *FileURLKeys) Sign(u FileURL) url.Values {
	query := url.Values{
		fileURLExpires:   {strconv.FormatInt(u.Expires.Unix(), 10)},
		fileURLPrincipal: {u.Principal},
	}
	if u.OnBehalfOf != "" {
		query.Set(fileURLOnBehalfOf, u.OnBehalfOf)
	}
	if u.MaxBytes != nil {
		query.Set(fileURLMaxBytes, strconv.FormatUint(*u.MaxBytes, 10))
	}
	query.Set(FileURLSignature, base64.RawURLEncoding.EncodeToString(k.keys.Get()[0].sign(u.Method, u.Path, query)))
	return query
}

// sign returns the signature of a URL with these parameters. Each is escaped and on a line
// of its own, so that no two URLs have the same text.
func (k fileURLKey) sign(method, path string, query url.Values) []byte {
	text := "execwire-file-url-1\n" + method + "\n" + url.QueryEscape(path)
	for _, name := range []string{fileURLExpires, fileURLMaxBytes, fileURLPrincipal, fileURLOnBehalfOf} {
		text += "\n" + strconv.FormatBool(query.Has(name)) + url.QueryEscape(query.Get(name))
	}
	mac := hmac.New(sha256.New, k)
	_, _ = mac.Write([]byte(text)) // never fails
	return mac.Sum(nil)
}

const fileURLSubject = "bearer of a signed URL"

// Verify returns what the parameters of a URL allow, if they were signed for this method and
// path and have not expired. A parameter that is repeated counts once, with its first value.
// The error is an *[Error] of kind [KindTokenInvalid] or [KindTokenExpired].
func (k *FileURLKeys) Verify(method, path string, query url.Values, now time.Time) (FileURL, error) {
	signature, err := base64.RawURLEncoding.Strict().DecodeString(query.Get(FileURLSignature))
	if err != nil {
		return FileURL{}, newError(KindTokenInvalid, fileURLSubject, "the signature is not base64url")
	}
	valid := 0
	for _, key := range k.keys.Get() {
		valid |= subtle.ConstantTimeCompare(signature, key.sign(method, path, query))
	}
	if valid == 0 {
		return FileURL{}, newError(KindTokenInvalid, fileURLSubject, "the signature is not that of this method and path, or its key was removed")
	}
	// What was signed is well-formed.
	seconds, _ := strconv.ParseInt(query.Get(fileURLExpires), 10, 64)
	u := FileURL{Method: method, Path: path, Expires: time.Unix(seconds, 0),
		Principal: query.Get(fileURLPrincipal), OnBehalfOf: query.Get(fileURLOnBehalfOf)}
	if query.Has(fileURLMaxBytes) {
		most, _ := strconv.ParseUint(query.Get(fileURLMaxBytes), 10, 64)
		u.MaxBytes = &most
	}
	if !now.Before(u.Expires) {
		return FileURL{}, newError(KindTokenExpired, fileURLSubject, "it expired at %v", u.Expires.UTC())
	}
	return u, nil
}

// Credentials returns the credentials of a request by the URL: those of a caller that was
// authenticated before. Its present permissions apply.
func (u FileURL) Credentials() Credentials {
	c := Credentials{Known: Principal{Name: u.Principal}, OnBehalfOf: u.OnBehalfOf}
	if c.Known == InProcess {
		c.Known, c.InProcess = Principal{}, true
	}
	return c
}

// SetCaller makes c the caller whose requests those by the URL are.
func (u *FileURL) SetCaller(c Caller) {
	u.Principal, u.OnBehalfOf = c.Self().Name, ""
	if !c.Via.IsZero() {
		u.OnBehalfOf = strings.TrimPrefix(c.Principal.Name, c.Via.Name+"/") // see impersonated
	}
}
