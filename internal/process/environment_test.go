package process

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEnvironmentPolicy(t *testing.T) {
	server := []string{
		"PATH=/bin", "HOME=/root", "LANG=C", "Lc_All=de", "EDITOR=vi", "API_KEY=k", "my_secret=s", "GITHUB_TOKEN=t", "KEYBOARD=x",
		"PATH=/second", "nonsense", "=empty",
	}
	for _, test := range []struct {
		name      string
		policy    EnvironmentPolicy
		overrides map[string]string
		want      string
	}{
		{"zero is nothing", EnvironmentPolicy{}, nil, ""},
		{"overrides only", EnvironmentPolicy{}, map[string]string{"B": "2", "A": "1"}, "A=1 B=2"},
		{"core", EnvironmentPolicy{Inherit: InheritCore}, nil, "HOME=/root LANG=C Lc_All=de PATH=/bin"},
		{"all", EnvironmentPolicy{Inherit: InheritAll}, nil, "EDITOR=vi HOME=/root LANG=C Lc_All=de PATH=/bin"},
		{
			"all without default excludes",
			EnvironmentPolicy{Inherit: InheritAll, IgnoreDefaultExcludes: true},
			nil,
			"API_KEY=k EDITOR=vi GITHUB_TOKEN=t HOME=/root KEYBOARD=x LANG=C Lc_All=de PATH=/bin my_secret=s",
		},
		{"exclude ignores case", EnvironmentPolicy{Inherit: InheritCore, Exclude: []string{"h?me", "lc_*"}}, nil, "LANG=C PATH=/bin"},
		{"set after exclude", EnvironmentPolicy{Exclude: []string{"*"}, Set: map[string]string{"A": "1", "A_TOKEN": "x"}}, nil, "A=1 A_TOKEN=x"},
		{"set replaces", EnvironmentPolicy{Inherit: InheritCore, Set: map[string]string{"PATH": "/x"}}, nil, "HOME=/root LANG=C Lc_All=de PATH=/x"},
		{
			"include only filters what was set",
			EnvironmentPolicy{Inherit: InheritAll, Set: map[string]string{"NEW": "1"}, IncludeOnly: []string{"p*", "EDITO?"}},
			nil,
			"EDITOR=vi PATH=/bin",
		},
		{
			"overrides pass every pattern",
			EnvironmentPolicy{Inherit: InheritAll, Exclude: []string{"*"}, IncludeOnly: []string{"NOTHING"}},
			map[string]string{"MY_TOKEN": "t", "PATH": "/o"},
			"MY_TOKEN=t PATH=/o",
		},
		{"empty values", EnvironmentPolicy{Set: map[string]string{"A": ""}}, map[string]string{"B": ""}, "A= B="},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.policy.Build(server, test.overrides)
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if !slices.IsSorted(got) {
				t.Errorf("not in order: %q", got)
			}
		})
	}
}

func TestEnvironmentPolicy_PatternMatching(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true},
		{"", "A", false},
		{"*", "", true},
		{"*", "ANY", true},
		{"?", "", false},
		{"?", "ä", true},
		{"A", "a", true},
		{"A", "AB", false},
		{"A*", "AB", true},
		{"*A", "BA", true},
		{"*A", "AB", false},
		{"*KEY*", "KEY", true},
		{"*KEY*", "a_key_b", true},
		{"*KEY*", "KE_Y", false},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXcYb", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"Ä*", "äx", true},
		{"[a]", "a", false},
		{"[a]", "[A]", true},
		{"*ab", "aab", true},
		{"a**b", "ab", true},
	} {
		if got := matches(fold(test.pattern), fold(test.name)); got != test.want {
			t.Errorf("%q matches %q: %v", test.pattern, test.name, got)
		}
	}
}

func TestEnvironmentPolicy_Validate(t *testing.T) {
	most := slices.Repeat([]string{strings.Repeat("*", MaxPatternBytes)}, MaxPatterns)
	if err := (EnvironmentPolicy{Exclude: most, IncludeOnly: most}).Validate(); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	tooMany, tooLong := append(slices.Clone(most), ""), []string{"A", most[0] + "*"}
	for field, policy := range map[string]EnvironmentPolicy{
		"environment_policy.exclude":         {Exclude: tooMany},
		"environment_policy.include_only":    {IncludeOnly: tooMany},
		"environment_policy.exclude[1]":      {Exclude: tooLong},
		"environment_policy.include_only[1]": {IncludeOnly: tooLong},
	} {
		err := policy.Validate()
		wantKind(t, err, InvalidArgument)
		var typed *Error
		if !errors.As(err, &typed) || typed.Field != field || !strings.Contains(err.Error(), "at most 256") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestEnvironmentPolicy_PatternTimeIsBounded(t *testing.T) {
	done := make(chan bool, 1)
	go func() { done <- matches(fold(strings.Repeat("a*", 500)+"b"), fold(strings.Repeat("a", 2000))) }()
	select {
	case matched := <-done:
		if matched {
			t.Error("matched")
		}
	case <-time.After(testTimeout):
		t.Fatal("exponential")
	}
}
