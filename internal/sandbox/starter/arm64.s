# The starter for arm64: amd64.s explains it.

	ldr	x19, [sp]		// argc
	add	x20, sp, 8		// argv
	add	x21, x20, x19, lsl 3
	add	x21, x21, 8		// environment

	adr	x0, sealed
	ldrb	w0, [x0]
	cbz	w0, place

	sub	sp, sp, 128		// struct stat
	mov	x22, 3
null:
	mov	x0, x22
	mov	x1, sp
	mov	x8, 80			// fstat
	svc	0
	tbnz	x0, 63, failed
	ldr	w0, [sp, 16]		// st_mode
	and	w0, w0, 0xf000		// S_IFMT
	cmp	w0, 0x2000		// S_IFCHR
	bne	kept
	ldr	x0, [sp, 32]		// st_rdev
	cmp	x0, 0x103
	bne	kept
	mov	x0, -100
	adr	x1, device
	mov	x2, 2			// O_RDWR
	mov	x3, 0
	mov	x8, 56			// openat
	svc	0
	tbnz	x0, 63, failed
	mov	x1, x22
	mov	x2, 0
	mov	x8, 24			// dup3
	svc	0
	tbnz	x0, 63, failed
kept:
	add	x22, x22, 1
	cmp	x22, 6
	bne	null

place:
	mov	x22, 0
streams:
	add	x0, x22, 3
	mov	x1, x22
	mov	x2, 0
	mov	x8, 24			// dup3(3+i, i, 0)
	svc	0
	tbnz	x0, 63, failed
	add	x22, x22, 1
	cmp	x22, 3
	bne	streams

	sub	sp, sp, 16
	str	xzr, [sp]
	mov	x0, 2			// SIG_SETMASK
	mov	x1, sp
	mov	x2, 0
	mov	x3, 8
	mov	x8, 135			// rt_sigprocmask
	svc	0
	tbnz	x0, 63, failed

	mov	x0, 3
	mov	w1, -1
	mov	x2, 4			// CLOSE_RANGE_CLOEXEC
	mov	x8, 436			// close_range
	svc	0
	tbnz	x0, 63, failed

	mov	x1, x21
	mov	x2, x21
entry:
	ldr	x0, [x1], 8
	cbz	x0, ended
	ldrb	w3, [x0]
	cmp	w3, '.'
	bne	entry
	add	x0, x0, 1
	str	x0, [x2], 8
	b	entry
ended:
	str	xzr, [x2]

	mov	x0, 38			// PR_SET_NO_NEW_PRIVS
	mov	x1, 1
	mov	x2, 0
	mov	x3, 0
	mov	x4, 0
	mov	x8, 167			// prctl
	svc	0
	tbnz	x0, 63, failed

	mov	x22, 0
capability:
	mov	x0, 24			// PR_CAPBSET_DROP
	mov	x1, x22
	mov	x2, 0
	mov	x3, 0
	mov	x4, 0
	mov	x8, 167			// prctl
	svc	0
	add	x22, x22, 1
	cmp	x22, 64
	bne	capability

	mov	x0, 47			// PR_CAP_AMBIENT
	mov	x1, 4			// PR_CAP_AMBIENT_CLEAR_ALL
	mov	x2, 0
	mov	x3, 0
	mov	x4, 0
	mov	x8, 167			// prctl
	svc	0
	tbnz	x0, 63, failed

	sub	sp, sp, 32		// the header, and the sets, which are empty
	movz	x0, 0x0522
	movk	x0, 0x2008, lsl 16	// _LINUX_CAPABILITY_VERSION_3, of this process
	str	x0, [sp]
	stp	xzr, xzr, [sp, 8]
	str	xzr, [sp, 24]
	mov	x0, sp
	add	x1, sp, 8
	mov	x8, 91			// capset
	svc	0
	tbnz	x0, 63, failed

	adr	x0, restricted
	ldrb	w0, [x0]
	cbz	w0, free
	mov	x0, 7
	mov	x1, 0
	mov	x8, 446			// landlock_restrict_self
	svc	0
	tbnz	x0, 63, failed
free:

	mov	x0, 1			// SECCOMP_SET_MODE_FILTER
	mov	x1, 0
	adr	x2, filter
	mov	x8, 277			// seccomp
	svc	0
	tbnz	x0, 63, failed

	mov	x0, 6
	mov	x1, sp
	mov	x2, 1
	mov	x8, 64			// write
	svc	0

	ldr	x0, [x20, 8]
	add	x1, x20, 16
	mov	x2, x21
	mov	x8, 221			// execve
	svc	0

failed:
	sub	sp, sp, 16
	str	x0, [sp]
	mov	x0, 6
	mov	x1, sp
	mov	x2, 8
	mov	x8, 64			// write
	svc	0
	mov	x0, 127
	mov	x8, 94			// exit_group
	svc	0

device:
	.asciz	"/dev/null"
	.balign	8
restricted:
	.equ	sealed, restricted+1
	.equ	filter, restricted+8
