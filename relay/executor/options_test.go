package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/executor"
)

// options returns valid options, modified by change.
func options(change func(*executor.Options)) executor.Options {
	o := executor.Options{
		BaseURL: "https://registry.invalid", ExecutorID: "machine-1", Credentials: token("x"),
		Serve: func(context.Context, *wsconn.Conn) error { return nil },
	}
	change(&o)
	return o
}

func TestOptions_Invalid_Fail(t *testing.T) {
	many, long := map[string]string{}, map[string]string{}
	for i := range executor.MaxLabels + 1 {
		many[fmt.Sprint("label", i)] = ""
	}
	for i := range executor.MaxLabels {
		long[fmt.Sprint("label", i)] = strings.Repeat("v", 128)
	}
	label := func(name, value string) func(*executor.Options) {
		return func(o *executor.Options) { o.Labels = map[string]string{name: value} }
	}
	id := func(id string) func(*executor.Options) { return func(o *executor.Options) { o.ExecutorID = id } }
	base := func(url string) func(*executor.Options) { return func(o *executor.Options) { o.BaseURL = url } }
	for name, tc := range map[string]struct {
		change func(*executor.Options)
		option string
		text   string
	}{
		"no base":             {base(" // "), "--remote", "executor registry base URL is required"},
		"base without scheme": {base("registry:443"), "--remote", "is not a URL of https:// or http://"},
		"base of files":       {base("file:///etc"), "--remote", "is not a URL of"},
		"base that is none":   {base("https://h:t0psecret"), "--remote", "is not a valid URL"},
		"base without host":   {base("https:///x"), "--remote", "has no host"},
		"base with a user":    {base("https://u:t0psecret@h"), "--remote", "has a user"},
		"base with fragment":  {base("https://h/#t0psecret"), "--remote", "has a user or a fragment"},
		"base with a query":   {base("https://h?t0psecret"), "--remote", "has a query"},
		"base ends in ?":      {base("https://h?"), "--remote", "has a query"},
		"http elsewhere":      {base("http://192.0.2.1"), "--remote", "is http:// to another host"},
		"http to a name":      {base("http://localhost.example.org"), "--remote", "is http:// to another host"},
		"no id":               {id("\t "), "--executor-id", "executor id is required for remote exec-server registration"},
		"long id":             {id(strings.Repeat("x", 257)), "--executor-id", "at most 256"},
		"id with a slash":     {id("a/b"), "--executor-id", `cannot be "a/b"`},
		"id of dots":          {id(".."), "--executor-id", "cannot be"},
		"id with a space":     {id("a b"), "--executor-id", "cannot be"},
		"id in other letters": {id("böse"), "--executor-id", "cannot be"},
		"long name":           {func(o *executor.Options) { o.Name = strings.Repeat("x", 257) }, "--name", "has 257 bytes; the limit is 256"},
		"name of two lines":   {func(o *executor.Options) { o.Name = "a\nb" }, "--name", "cannot be printed"},
		"name not in UTF-8":   {func(o *executor.Options) { o.Name = "\xff" }, "--name", "is not UTF-8"},
		"long version":        {func(o *executor.Options) { o.Version = strings.Repeat("x", 65) }, "Version", "has 65 bytes"},
		"version of lines":    {func(o *executor.Options) { o.Version = "v1\r\n" }, "Version", "cannot be printed"},
		"many labels":         {func(o *executor.Options) { o.Labels = many }, "--executor-labels", "is given 33 times"},
		"many bytes":          {func(o *executor.Options) { o.Labels = long }, "--executor-labels", "the encoded labels may take 4096"},
		"label without name":  {label("", "x"), "--executor-labels", "cannot have the name"},
		"label's long name":   {label(strings.Repeat("x", 65), "x"), "--executor-labels", "cannot have the name"},
		"label's odd name":    {label("a=b", "x"), "--executor-labels", "cannot have the name"},
		"label's long value":  {label("a", strings.Repeat("x", 257)), "--executor-labels a", "has 257 bytes"},
		"label's odd value":   {label("a", "\x00"), "--executor-labels a", "cannot be printed"},
		"nobody to serve":     {func(o *executor.Options) { o.Serve = nil }, "Serve", "is required"},
	} {
		err := executor.Run(t.Context(), options(tc.change))
		wrong, ok := errors.AsType[*executor.OptionsError](err)
		if !ok || wrong.Name != tc.option || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), tc.option) || strings.Contains(err.Error(), "t0psecret") {
			t.Errorf("%s: %v, want an OptionsError of %s that says %q", name, err, tc.option, tc.text)
		}
		if !executor.Final(err, false) {
			t.Errorf("%s is not final", name)
		}
	}
}

// Without credentials only a registry on loopback is allowed.
func TestOptions_NoCredentials_NeedLoopback(t *testing.T) {
	err := executor.Run(t.Context(), options(func(o *executor.Options) { o.Credentials = nil }))
	if _, ok := errors.AsType[*executor.CredentialsError](err); !ok || !strings.Contains(err.Error(), "--remote-token-file") {
		t.Errorf("Run = %v, want a CredentialsError", err)
	}
	h := newHub(t)
	r := h.start(t)
	r.next(registered)
	if registrations, _ := h.seen(); registrations[0].Header["Authorization"] != nil {
		t.Error("something was shown")
	}
}

// The rendezvous may use plain text on loopback only.
func TestOptions_PlainTextRendezvous_IsRejected(t *testing.T) {
	h := newHub(t)
	h.register = answer(200, `{"executor_id":"machine-1","url":"ws://0.0.0.0:1/"}`) // reaches loopback, but is not a loopback address
	if err := h.start(t, withToken).wait(); err == nil || !strings.Contains(err.Error(), "url is ws:// to another host") {
		t.Errorf("Run = %v", err)
	}
}

func TestOptions_Valid(t *testing.T) {
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("at once"))
	for name, change := range map[string]func(*executor.Options){
		"as long as may be": func(o *executor.Options) {
			o.ExecutorID, o.Name = strings.Repeat("x", 256), strings.Repeat("x", 256)
			o.Labels = map[string]string{strings.Repeat("x", 64): strings.Repeat("v", 256), "a.b/c-d_e": ""}
		},
		"loopback":         func(o *executor.Options) { o.BaseURL = "http://LOCALHOST:1" },
		"loopback of IPv6": func(o *executor.Options) { o.BaseURL = "http://[::1]:1" },
		"mapped loopback":  func(o *executor.Options) { o.BaseURL = "http://[::ffff:127.0.0.1]:1" },
	} {
		if err := executor.Run(ended, options(change)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
