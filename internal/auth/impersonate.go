package auth

import "fmt"

// maxImpersonatedNameBytes bounds the names of impersonated principals, so that
// both names and the slash fit into the 256 bytes of a grant.
const maxImpersonatedNameBytes = maxNameBytes - 1

// checkImpersonation returns an error of kind [KindOnBehalfOfRefused] unless name
// is valid and matches allowed.
func checkImpersonation(self Caller, allowed []string, name string) error {
	subject := "one that " + self.Principal.String() + " acts for"
	if problem := nameProblem(name); problem != "" {
		return newError(KindOnBehalfOfRefused, subject, "the name %.140q %s", name, problem)
	}
	if len(name) > maxImpersonatedNameBytes {
		return newError(KindOnBehalfOfRefused, subject, "the name has more than %d bytes", maxImpersonatedNameBytes)
	}
	if !matchesAny(allowed, name) {
		return newError(KindOnBehalfOfRefused, subject, "%q matches no pattern of on_behalf_of", name)
	}
	return nil
}

// impersonated returns self acting on behalf of a name that is not in the table.
// The slash distinguishes the name from all authenticated principals, and from
// the same name used by another principal.
func impersonated(self Caller, name string) Caller {
	return Caller{Principal: Principal{Name: fmt.Sprintf("%s/%s", self.Principal.Name, name)}, Via: self.Principal, May: self.May, RunAs: self.RunAs, Record: self.Record}
}
