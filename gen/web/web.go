// Package web has the page of the console. tools/web makes it of the sources in web.
package web

import _ "embed"

// Asset is a part of the page.
type Asset struct {
	// Type is its media type.
	Type string
	// Gzip is its content, compressed.
	Gzip []byte
}

// Assets are the parts of the page, by the last part of their paths.
var Assets = map[string]Asset{
	"index.html":  {"text/html; charset=utf-8", page},
	"console.js":  {"text/javascript; charset=utf-8", script},
	"console.css": {"text/css; charset=utf-8", style},
}

//go:embed index.html.gz
var page []byte

//go:embed console.js.gz
var script []byte

//go:embed console.css.gz
var style []byte
