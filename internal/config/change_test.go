package config_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/execwire/execwire/internal/config"
)

// Every setting says whether a running program can change it.
func TestSettings_SayWhetherTheyReload(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[config.Config](), reflect.TypeFor[config.Hub]()} {
		for i := range of.NumField() {
			if tag := of.Field(i).Tag.Get("reload"); tag != "yes" && tag != "no" {
				t.Errorf("%v.%s: the tag reload is %q, and has to be yes or no", of, of.Field(i).Name, tag)
			}
		}
	}
}

func TestChanges_AndApply(t *testing.T) {
	from, to := config.Default(), config.Default()
	if got := config.Changes(&from, &to); len(got) != 0 {
		t.Errorf("without a difference: %v", got)
	}
	to.MaxWait, to.Listen, to.WebsocketTokenHash = 0, []string{"off", "x"}, "secret"
	want := []config.Change{
		{Setting: "listen", Old: "tcp://127.0.0.1:7420", New: "off,x"},
		{Setting: "max_wait", Old: "10m", New: "0s", Reload: true},
		{Setting: "ws_token_sha256"},
	}
	if got := config.Changes(&from, &to); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	config.Apply(&from, &to)
	if got := config.Changes(&from, &to); !slices.Equal(got, []config.Change{want[0], want[2]}) {
		t.Errorf("after Apply: %v", got)
	}
}
