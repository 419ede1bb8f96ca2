package secretfile

import (
	"slices"
	"strings"
)

// TokenVariable is the environment variable with the token of a client command. Unlike
// other variables it has the secret itself, so that no program gets it from this one.
const TokenVariable = "EXECWIRE_TOKEN"

// WithoutToken returns the variables of environ, in the form of os.Environ, without
// TokenVariable.
func WithoutToken(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, TokenVariable+"=") })
}
