package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// What was saved is read again, where a link points to, by its owner alone and without
// anything else in the directory.
func TestContexts_SaveAndLoad(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	path, target := filepath.Join(directory, "contexts.toml"), filepath.Join(directory, "dotfiles", "contexts.toml")
	if err := os.Mkdir(filepath.Dir(target), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.WriteFile(target, nil, 0o644), os.Symlink(target, path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	contexts, err := LoadContexts(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Context{
		"build":  {Server: "tls://b:1", TokenFile: "/t", TLSCA: "/ca", TLSCert: "/c", TLSKey: "/k"},
		"farm.1": {Hub: "https://h", Executor: "e"},
	}
	contexts.List, contexts.Current = want, "farm.1"
	if err := contexts.Save(); err != nil {
		t.Fatal(err)
	}
	read, err := LoadContexts(path)
	if err != nil || read.Current != "farm.1" || !reflect.DeepEqual(read.List, want) {
		t.Errorf("got %+v, %v", read, err)
	}
	_, sources, err := read.Get("build")
	if err != nil || sources["token_file"].Line == 0 || sources["token_file"].Name != path {
		t.Errorf("sources are %+v, %v", sources, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if names, err := filepath.Glob(filepath.Dir(target) + "/*"); err != nil || !slices.Equal(names, []string{target}) {
		t.Errorf("the directory has %q, %v", names, err)
	}
	// What cannot be written leaves the old file.
	contexts.Path, contexts.List = filepath.Join(path, "below-a-file"), nil
	if err := contexts.Save(); err == nil {
		t.Error("a file below a file was saved")
	}
}

// What is wrong with a file is an error with its place.
func TestLoadContexts_SaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "contexts.toml")
	for text, want := range map[string]string{
		"current = [":                   `:1:11: is not TOML: unexpected EOF; expected value`,
		"\nport = 1":                    `:2:1: port does not belong here: the file has current = "NAME", and a table [contexts.NAME] for each context`,
		"current = 1":                   `:1:1: current does not belong here: the file has current = "NAME", and a table [contexts.NAME] for each context`,
		"current = 'x'":                 `:1:11: current: there is no context "x" in ` + path,
		"[contexts.x]\n toke_file = ''": `:2:2: toke_file is not a setting: did you mean token_file? execwire context --help has an example`,
		"[contexts.x]\nserver = 'tcp://a:1'\ntoken_file = 'y'": `:3:14: token_file cannot be "y": write an absolute path`,
		"contexts.x = 3": `:1:1: contexts.x is not a table: write [contexts.x]`,
		"[contexts.x]\n\n[contexts.y]\nserver = 'a'\n":                  `:1:1: contexts.x names neither a server nor a hub`,
		"[contexts.'a b']\nserver = 'a'\n":                              `:1:1: contexts.a b the name "a b" is not allowed: a name has up to 100 letters, digits, dots, - and _, and begins with a letter or digit`,
		"[contexts.x]\nhub = 'a'\nserver = 'b'":                         `:3:10: server is for a server, and hub and executor are for one behind a hub: leave one of them out`,
		"[contexts.x]\nserver = 'b'\ntls_cert = '/c'":                   `:3:12: tls_cert and tls_key are only used together`,
		"[contexts.build]\nserver = 'b'\n[contexts.x]\nserver = true\n": `:4:10: server cannot be true; it is measured in text`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadContexts(path)
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Finding() != path+want {
			t.Errorf("%q: got %v\nwant %s", text, err, path+want)
		}
	}
}
