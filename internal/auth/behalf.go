package auth

import (
	"fmt"
	"path"
	"slices"
)

// maxOthersNameBytes bounds the names of those that somebody acts for, so that
// both names and the slash fit into the 256 bytes that a grant may name.
const maxOthersNameBytes = maxNameBytes - 1

// mayActFor returns an error of kind [KindOnBehalfOfRefused] unless name is
// right and matches what self is allowed.
func mayActFor(self Caller, allowed []string, name string) error {
	subject := "one that " + self.Principal.String() + " acts for"
	if problem := badName(name); problem != "" {
		return failed(KindOnBehalfOfRefused, subject, "the name %.140q %s", name, problem)
	}
	if len(name) > maxOthersNameBytes {
		return failed(KindOnBehalfOfRefused, subject, "the name has more than %d bytes", maxOthersNameBytes)
	}
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	if !slices.ContainsFunc(allowed, matches) {
		return failed(KindOnBehalfOfRefused, subject, "%q matches nothing of its on_behalf_of", name)
	}
	return nil
}

// unlisted is the caller that self is when it acts for somebody who is in no
// table. The slash keeps the name apart from every principal that comes itself,
// and from what another one calls by the same name.
func unlisted(self Caller, name string) Caller {
	return Caller{Principal: Principal{Name: fmt.Sprintf("%s/%s", self.Principal.Name, name)}, Via: self.Principal, May: self.May}
}
