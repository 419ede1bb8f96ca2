package jsonrpc

import "testing"

func TestFileURI_EncodesReservedCharacters(t *testing.T) {
	const want = "file:///a%20b/%C3%BC%23%3F%25%7B%7D%5C%60%22%3C%3E/~-_.!$&'()*+,;=:@[]^|"
	if got := FileURI("/a b/ü#?%{}\\`\"<>/~-_.!$&'()*+,;=:@[]^|"); got != want {
		t.Errorf("FileURI is %q, want %q", got, want)
	}
}
