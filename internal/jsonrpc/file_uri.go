package jsonrpc

import "strings"

// FileURI returns the file: URI of an absolute path, as the reference writes it, so that
// URIs are equal as text.
func FileURI(path string) string {
	const digits = "0123456789ABCDEF"
	encoded := append(make([]byte, 0, len(path)+16), "file://"...)
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%<>?\\`{}", c) >= 0 {
			encoded = append(encoded, '%', digits[c>>4], digits[c&15])
		} else {
			encoded = append(encoded, c)
		}
	}
	return string(encoded)
}
