package secretfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/secretfile"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func file(t *testing.T, mode fs.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, mode, text)
	return path
}

// write replaces a file atomically.
func write(t *testing.T, path string, mode fs.FileMode, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path+".new", mode), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func TestToken(t *testing.T) {
	token, err := secretfile.Token(file(t, 0o600, "\n abcd \n"), 4)
	if err != nil || string(token) != "abcd" {
		t.Errorf("Token = %q, %v, want it without white space", token, err)
	}
	_, err = secretfile.Token(file(t, 0o600, "abcd\n"), 5)
	if err == nil || !strings.Contains(err.Error(), "4 bytes") || !strings.Contains(err.Error(), "openssl rand") || strings.Contains(err.Error(), "abcd") {
		t.Errorf("a short token: %v", err)
	}
}

// clock is a clock that tests advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestWatched(t *testing.T) {
	path := file(t, 0o600, "one")
	clock := &clock{now: time.Now()}
	var broken []error
	loads := 0
	w, err := secretfile.Watch(func() (string, []string, error) {
		loads++
		text, err := secretfile.Secret(path)
		return string(text), []string{path}, err
	}, func(err error) { broken = append(broken, err) }, clock.Now)
	if err != nil || w.Get() != "one" {
		t.Fatalf("Watch: %v, want one", err)
	}
	write(t, path, 0o600, "two")
	if got := w.Get(); got != "one" {
		t.Errorf("within the second: %q", got)
	}
	clock.pass(time.Second)
	if got := w.Get(); got != "two" {
		t.Errorf("a second later: %q", got)
	}
	// The same size, and an earlier modification time.
	before := loads
	if err := errors.Join(os.WriteFile(path, []byte("owt"), 0o600), os.Chtimes(path, time.Time{}, time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	clock.pass(time.Second)
	if got := w.Get(); got != "owt" || loads != before+1 {
		t.Errorf("written in place: %q after %d loads", got, loads-before)
	}
	for _, spoil := range []func() error{
		func() error { return os.Chmod(path, 0o644) },
		func() error { return os.Remove(path) },
	} {
		broken, before = nil, loads
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			clock.pass(time.Second)
			if got := w.Get(); got != "owt" {
				t.Errorf("a broken version: %q", got)
			}
		}
		if len(broken) != 1 || loads != before+1 {
			t.Errorf("a broken version was told as %v, after %d loads; want once", broken, loads-before)
		}
	}
	write(t, path, 0o600, "three")
	clock.pass(time.Second)
	if got := w.Get(); got != "three" || len(broken) != 1 {
		t.Errorf("after it was repaired: %q, %v", got, broken)
	}
}

func TestWatch_FirstLoadFails(t *testing.T) {
	want := errors.New("no")
	if _, err := secretfile.Watch(func() (int, []string, error) { return 0, nil, want }, nil, nil); !errors.Is(err, want) {
		t.Errorf("Watch = %v", err)
	}
}

// A Get during a reload returns the previous value at once.
func TestGet_DuringReload_DoesNotWait(t *testing.T) {
	path := file(t, 0o600, "one")
	clock := &clock{now: time.Now()}
	loading, proceed := make(chan struct{}), make(chan struct{})
	first := true
	w, err := secretfile.Watch(func() (string, []string, error) {
		if !first {
			loading <- struct{}{}
			<-proceed
		}
		text, err := secretfile.Secret(path)
		return string(text), []string{path}, err
	}, nil, clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	first = false
	write(t, path, 0o600, "two")
	clock.pass(time.Second)
	got := make(chan string, 1)
	go func() { got <- w.Get() }()
	<-loading
	clock.pass(time.Second)
	if got := w.Get(); got != "one" {
		t.Errorf("meanwhile: %q", got)
	}
	close(proceed)
	if got := <-got; got != "two" {
		t.Errorf("the one that loaded got %q", got)
	}
}

// A file that the system could not read for lack of resources is not invalid:
// loading is retried.
func TestGet_SystemFailure_IsRetried(t *testing.T) {
	path := file(t, 0o600, "one")
	clock := &clock{now: time.Now()}
	var broken []error
	short := false
	w, err := secretfile.Watch(func() (string, []string, error) {
		if short {
			return "", []string{path}, &secretfile.Error{File: path, Err: &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}}
		}
		text, err := secretfile.Secret(path)
		return string(text), []string{path}, err
	}, func(err error) { broken = append(broken, err) }, clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, 0o600, "two")
	short = true
	for range 3 {
		clock.pass(time.Second)
		if got := w.Get(); got != "one" {
			t.Errorf("while it cannot be read: %q", got)
		}
	}
	short = false
	clock.pass(time.Second)
	if got := w.Get(); got != "two" {
		t.Errorf("once it can be read: %q", got)
	}
	if len(broken) != 1 || !errors.Is(broken[0], syscall.EMFILE) {
		t.Errorf("it was told %v, want it once", broken)
	}
}

// A clock that is set back does not delay the detection of a change.
func TestGet_ClockSetBack_Reloads(t *testing.T) {
	path := file(t, 0o600, "one")
	clock := &clock{now: time.Now()}
	w, err := secretfile.Watch(func() (string, []string, error) {
		text, err := secretfile.Secret(path)
		return string(text), []string{path}, err
	}, nil, clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, 0o600, "two")
	clock.pass(-time.Hour)
	if got := w.Get(); got != "two" {
		t.Errorf("an hour earlier: %q", got)
	}
}
