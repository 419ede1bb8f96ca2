package screen

// Modes are the modes that programs set. The zero value is that of a new Screen.
type Modes struct {
	// ApplicationCursor and ApplicationKeypad change what the keys send.
	ApplicationCursor, ApplicationKeypad bool
	// Insert moves characters to the right, NewLine makes a line feed return, too, and NoWrap ends the
	// wrapping at the right.
	Insert, NewLine, NoWrap bool
	// CursorHidden hides the cursor, CursorBlinks makes it blink, ReverseVideo exchanges the colours.
	CursorHidden, CursorBlinks, ReverseVideo bool
	// BracketedPaste marks what is pasted, FocusEvents reports the focus, and AlternateScroll has the
	// wheel of the mouse send keys.
	BracketedPaste, FocusEvents, AlternateScroll bool
	// Mouse is the private mode that was set last of 9, 1000, 1002 and 1003, and MouseEncoding that of
	// 1005, 1006, 1015 and 1016; 0: none.
	Mouse, MouseEncoding uint16
	// CursorShape is that of DECSCUSR; 0: the default.
	CursorShape uint8
	// ModifyOtherKeys is that of xterm; 0: off.
	ModifyOtherKeys uint8
}

// flag returns the mode that a private mode sets, and the value that it then has; nil: it is none.
func (m *Modes) flag(number int) (mode *bool, set bool) {
	switch number {
	case 1:
		return &m.ApplicationCursor, true
	case 5:
		return &m.ReverseVideo, true
	case 7:
		return &m.NoWrap, false
	case 12:
		return &m.CursorBlinks, true
	case 25:
		return &m.CursorHidden, false
	case 66:
		return &m.ApplicationKeypad, true
	case 1004:
		return &m.FocusEvents, true
	case 1007:
		return &m.AlternateScroll, true
	case 2004:
		return &m.BracketedPaste, true
	}
	return nil, false
}

// setPrivateMode is DECSET and DECRST.
func (t *terminal) setPrivateMode(number int, set bool) {
	if mode, value := t.modes.flag(number); mode != nil {
		*mode = value == set
		return
	}
	switch number {
	case 6:
		t.cursor.origin = set
		t.moveInRegion(0, 0)
	case 9, 1000, 1002, 1003:
		setOne(&t.modes.Mouse, uint16(number), set)
	case 1005, 1006, 1015, 1016:
		setOne(&t.modes.MouseEncoding, uint16(number), set)
	case 47, 1047:
		t.showAlternate(set)
	case 1048:
		if set {
			t.save()
		} else {
			t.restore()
		}
	case 1049:
		if set {
			t.save()
			t.showAlternate(true)
			t.eraseLines(0, t.rows)
		} else {
			t.showAlternate(false)
			t.restore()
		}
	}
}

// setOne sets a mode of which one can be set; to reset any of them resets it.
func setOne(mode *uint16, number uint16, set bool) {
	if *mode = 0; set {
		*mode = number
	}
}
