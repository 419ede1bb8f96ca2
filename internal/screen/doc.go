// Package screen keeps what a terminal shows: a Screen is fed the output of a program and is asked for
// the lines, the cursor and the modes, or for the escape sequences that make another terminal show the
// same.
//
// It follows xterm in UTF-8 mode, as programs with TERM=xterm-256color use it; see
// docs/decisions/0011-screen.md for why it is not a library. The parser is that of
// Paul Williams' state machine (https://vt100.net/emu/dec_ansi_parser). It never answers a query: the
// attached terminal does. It has no scrollback, no left and right margins, no double-width
// lines, no palette, no hyperlinks and no images: the sequences of those are consumed.
//
// The input is hostile: no sequence costs memory beyond what the size of the screen bounds, and the time
// per byte is at most proportional to the number of cells.
package screen
