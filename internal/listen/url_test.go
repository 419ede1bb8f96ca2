package listen_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/listen"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"grpc://127.0.0.1:7420":               "grpc://127.0.0.1:7420",
		"grpc://127.8.9.10:1":                 "grpc://127.8.9.10:1",
		"grpc://127.0.0.1:0":                  "grpc://127.0.0.1:0",
		"grpc://[::1]:65535":                  "grpc://[::1]:65535",
		"grpc://[::ffff:127.0.0.1]:1":         "grpc://127.0.0.1:1",
		"grpc://localhost:7420":               "grpc://127.0.0.1:7420",
		"grpc://LocalHost:7420":               "grpc://127.0.0.1:7420",
		"grpcs://127.0.0.1:7420":              "grpcs://127.0.0.1:7420",
		"grpcs://0.0.0.0:7420":                "grpcs://0.0.0.0:7420",
		"grpcs://[::]:0":                      "grpcs://[::]:0",
		"grpcs://[2001:db8::1]:1":             "grpcs://[2001:db8::1]:1",
		"grpcs://localhost:7420":              "grpcs://127.0.0.1:7420",
		"unix:///run/execwire.sock":           "unix:///run/execwire.sock",
		"unix:///run//x/../execwire.sock":     "unix:///run/execwire.sock",
		"unix:///a b/%41":                     "unix:///a b/%41", // used as is
		"unix:///" + strings.Repeat("x", 106): "unix:///" + strings.Repeat("x", 106),
		"off":                                 "off",
		"ws://127.0.0.1:7421":                 "ws://127.0.0.1:7421",
		"ws://0.0.0.0:0":                      "ws://0.0.0.0:0", // checked by Listen
		"ws://[::1]:0":                        "ws://[::1]:0",
		"ws://localhost:7421":                 "ws://127.0.0.1:7421",
		"wss://[2001:db8::1]:1":               "wss://[2001:db8::1]:1",
		"stdio":                               "stdio",
		"stdio://":                            "stdio",
	} {
		t.Run(raw, func(t *testing.T) {
			u, err := listen.Parse(raw)
			if err != nil || u.String() != want {
				t.Fatalf("Parse = %v, %v, want %v", u, err, want)
			}
			if again, err := listen.Parse(u.String()); err != nil || again != u {
				t.Errorf("Parse of the result = %v, %v, want the same", again, err)
			}
		})
	}
}

func TestParse_Invalid_Fails(t *testing.T) {
	for _, tc := range []struct {
		raw   string
		kind  listen.Kind
		texts []string // parts of the message
	}{
		{"", listen.KindMalformed, []string{"no scheme", "grpc://127.0.0.1:7420"}},
		{"127.0.0.1:7420", listen.KindMalformed, []string{"no scheme"}},
		{"://127.0.0.1:7420", listen.KindMalformed, []string{"no scheme"}},
		{"http://127.0.0.1:7420", listen.KindMalformed, []string{`scheme "http" is unknown`, "unix:///"}},
		{"grpc", listen.KindMalformed, []string{"needs ://"}},
		{"grpc:127.0.0.1:7420", listen.KindMalformed, []string{"no scheme"}},
		{"grpc://", listen.KindMalformed, []string{"no port"}},
		{"grpc://127.0.0.1", listen.KindMalformed, []string{"no port"}},
		{"grpc://[::1]", listen.KindMalformed, []string{"no port"}},
		{"grpc://:7420", listen.KindMalformed, []string{"no host"}},
		{"grpc://127.0.0.1:", listen.KindMalformed, []string{`port ""`}},
		{"grpc://127.0.0.1:http", listen.KindMalformed, []string{`port "http"`, "0 to 65535"}},
		{"grpc://127.0.0.1:65536", listen.KindMalformed, []string{`port "65536"`}},
		{"grpc://127.0.0.1:+1", listen.KindMalformed, []string{`port "+1"`}},
		{"grpc://127.0.0.1:-1", listen.KindMalformed, []string{`port "-1"`}},
		{"grpc://127.0.0.1:7420/", listen.KindMalformed, []string{`'/'`}},
		{"grpc://127.0.0.1:7420?tls=1", listen.KindMalformed, []string{`'?'`}},
		{"grpc://me@127.0.0.1:7420", listen.KindMalformed, []string{`'@'`}},
		{"grpc://::1:7420", listen.KindMalformed, []string{"brackets"}},
		{"grpc://[127.0.0.1]:7420", listen.KindMalformed, []string{"brackets"}},
		{"grpc://[::1%lo]:7420", listen.KindMalformed, []string{"zone"}},
		{"grpc://[::1:7420", listen.KindMalformed, []string{"brackets"}},
		{"grpc://[x]:7420", listen.KindMalformed, []string{"is not an address"}},
		{"unix", listen.KindMalformed, []string{"needs ://"}},
		{"unix://", listen.KindMalformed, []string{"no path"}},
		{"unix:/run/s", listen.KindMalformed, []string{"no scheme", "unix:///"}},
		{"unix://run/s", listen.KindMalformed, []string{"not absolute", "unix:///"}},
		{"unix:///run/", listen.KindMalformed, []string{"directory"}},
		{"unix:///run/.", listen.KindMalformed, []string{"directory"}},
		{"unix:///run/..", listen.KindMalformed, []string{"directory"}},
		{"unix:///a\x00b", listen.KindMalformed, []string{"zero byte"}},
		{"off://", listen.KindMalformed, []string{"no address"}},
		{"unix:///" + strings.Repeat("x", 107), listen.KindTooLong, []string{"108 bytes", "107", "/run"}},

		{"grpcs", listen.KindMalformed, []string{"needs ://"}},
		{"grpcs://127.0.0.1", listen.KindMalformed, []string{"no port"}},
		{"grpcs://example.com:7420", listen.KindMalformed, []string{"example.com", "0.0.0.0"}},
		{"grpcs://:7420", listen.KindMalformed, []string{"no host"}},
		{"grpcs://0.0.0.0:7420/x", listen.KindMalformed, []string{`'/'`}},
		{"grpcs://[fe80::1%eth0]:7420", listen.KindMalformed, []string{"zone"}},
		{"ws", listen.KindMalformed, []string{"needs ://"}},
		{"ws://127.0.0.1", listen.KindMalformed, []string{"no port"}},
		{"ws://127.0.0.1:0/path", listen.KindMalformed, []string{`'/'`}},
		{"ws://127.0.0.1:99999", listen.KindMalformed, []string{`port "99999"`}},
		{"ws://example.com:7421", listen.KindMalformed, []string{"example.com", "0.0.0.0"}},
		{"wss://example.com:7421", listen.KindMalformed, []string{"example.com"}},
		{"stdio://x", listen.KindMalformed, []string{"stdio takes no address", "ws://127.0.0.1:7420"}},
		{"stdio:", listen.KindMalformed, []string{"no scheme"}},

		{"grpc://0.0.0.0:7420", listen.KindNotLoopback, []string{"0.0.0.0", "grpcs://ADDRESS:7420", "ssh -L 7420:127.0.0.1:7420 HOST"}},
		{"grpc://[::]:7420", listen.KindNotLoopback, nil},
		{"grpc://192.168.1.2:9000", listen.KindNotLoopback, []string{"ssh -L 9000:127.0.0.1:9000 HOST"}},
		{"grpc://8.8.8.8:0", listen.KindNotLoopback, []string{"ssh -L 7420:127.0.0.1:7420 HOST"}},
		{"grpc://[2001:db8::1]:7420", listen.KindNotLoopback, nil},
		{"grpc://[fe80::1]:7420", listen.KindNotLoopback, nil},
		{"grpc://[::ffff:8.8.8.8]:7420", listen.KindNotLoopback, nil},
		{"grpc://example.com:7420", listen.KindNotLoopback, []string{"example.com"}},
		{"grpc://localhost.example.com:7420", listen.KindNotLoopback, nil},
		{"grpc://127.0.0.1.nip.io:7420", listen.KindNotLoopback, nil},
		{"grpc://2130706433:7420", listen.KindNotLoopback, nil}, // 127.0.0.1 for some resolvers
	} {
		t.Run(tc.raw, func(t *testing.T) {
			u, err := listen.Parse(tc.raw)
			var typed *listen.Error
			if !errors.As(err, &typed) || typed.Kind != tc.kind {
				t.Fatalf("Parse = %v, %v, want an Error of kind %v", u, err, tc.kind)
			}
			if typed.URL != tc.raw {
				t.Errorf("the error is about %q, want %q", typed.URL, tc.raw)
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the message %q does not contain %q", err, text)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"grpc://127.0.0.1:7420", "grpc://[::1]:0", "unix:///run/s", "off", "grpc://0.0.0.0:1", "ws://x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := listen.Parse(raw)
		if err != nil {
			return
		}
		if u.Scheme == listen.SchemeGRPC && !u.Addr.Addr().IsLoopback() {
			t.Errorf("Parse(%q) permits listening on %v", raw, u.Addr)
		}
		if again, err := listen.Parse(u.String()); err != nil || again != u {
			t.Errorf("Parse(%q) = %v, which parses as %v, %v", raw, u, again, err)
		}
	})
}
