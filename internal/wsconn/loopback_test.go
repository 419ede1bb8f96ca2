package wsconn

import "testing"

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example.com": false, "example.com": false, "0.0.0.0": false, "10.0.0.1": false, "::": false, "127.0.0.1.example.com": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("IsLoopback(%q) is %v, want %v", host, got, want)
		}
	}
}
