package config

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// defaultClockSkew is the default of ws_max_clock_skew.
const defaultClockSkew = Duration(30 * time.Second)

// isSHA256 reports whether a text is a digest in hexadecimal.
func isSHA256(text string) bool {
	digest, err := hex.DecodeString(text)
	return err == nil && len(digest) == sha256.Size
}

// validateWebsocketAuth checks that the settings are complete and that each has an
// effect, because an operator who sets one relies on it.
func (c *Config) validateWebsocketAuth() error {
	switch c.WebsocketAuth {
	case "off":
		if c.hasToken() || c.hasSignature() {
			return &Error{Setting: "ws_auth", Problem: "has to be capability-token or signed-bearer-token for what is set beside it to have an effect"}
		}
	case "capability-token":
		switch {
		case c.hasSignature():
			return &Error{Setting: "ws_shared_secret_file", Problem: "and ws_issuer, ws_audience and ws_max_clock_skew need ws_auth to be signed-bearer-token"}
		case c.WebsocketToken != "" && c.WebsocketTokenHash != "":
			return &Error{Setting: "ws_token_file", Problem: "and ws_token_sha256 exclude each other"}
		case !c.hasToken():
			return &Error{Setting: "ws_token_file", Problem: "or ws_token_sha256 is needed when ws_auth is capability-token"}
		case c.WebsocketTokenHash != "" && !isSHA256(c.WebsocketTokenHash):
			return &Error{Setting: "ws_token_sha256", Problem: "is not a SHA-256 of 64 hexadecimal digits"}
		}
	case "signed-bearer-token":
		switch {
		case c.hasToken():
			return &Error{Setting: "ws_token_file", Problem: "and ws_token_sha256 need ws_auth to be capability-token"}
		case c.WebsocketSecret == "":
			return &Error{Setting: "ws_shared_secret_file", Problem: "is needed when ws_auth is signed-bearer-token"}
		}
	}
	return nil
}

func (c *Config) hasToken() bool { return c.WebsocketToken != "" || c.WebsocketTokenHash != "" }

func (c *Config) hasSignature() bool {
	return c.WebsocketSecret != "" || c.WebsocketIssuer != "" || c.WebsocketAudience != "" || c.WebsocketClockSkew != defaultClockSkew
}
