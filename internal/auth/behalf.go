package auth

import (
	"fmt"
	"path"
	"slices"
)

// mayActFor returns an error of kind [KindOnBehalfOfRefused] unless name is
// right and matches what self is allowed.
func mayActFor(self Caller, allowed []string, name string) error {
	if problem := badName(name); problem != "" {
		return failed(KindOnBehalfOfRefused, "one that "+self.Principal.String()+" acts for", "the name %.140q %s", name, problem)
	}
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	if !slices.ContainsFunc(allowed, matches) {
		return failed(KindOnBehalfOfRefused, "one that "+self.Principal.String()+" acts for", "%q matches nothing of its on_behalf_of", name)
	}
	return nil
}

// unlisted is the caller that self is when it acts for somebody who is in no
// table. The slash keeps the name apart from every principal that comes itself,
// and from what another one calls by the same name.
func unlisted(self Caller, name string) Caller {
	return Caller{Principal: Principal{Name: fmt.Sprintf("%s/%s", self.Principal.Name, name)}, Via: self.Principal, May: self.May}
}
