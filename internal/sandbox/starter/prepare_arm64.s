# The preparer for arm64: prepare_amd64.s explains it.

	mov	x0, 7
	mov	x1, 0
	mov	x2, 2			// SEEK_END
	mov	x8, 62			// lseek
	svc	0
	tbnz	x0, 63, failed

	mov	x1, x0
	mov	x0, 0x10000000
	mov	x2, 3			// PROT_READ, PROT_WRITE
	mov	x3, 0x12		// MAP_PRIVATE, MAP_FIXED
	mov	x4, 7
	mov	x5, 0
	mov	x8, 222			// mmap
	svc	0
	tbnz	x0, 63, failed

	ldr	x19, [x0]
call:
	ldr	x8, [x19]
	cmn	x8, 1
	beq	ready
	cmn	x8, 2
	beq	compare
	ldp	x0, x1, [x19, 8]
	ldp	x2, x3, [x19, 24]
	ldp	x4, x5, [x19, 40]
	svc	0
	tbnz	x0, 63, failed
	ldr	x20, [x19, 56]
	add	x19, x19, 64
result:
	ldr	x1, [x20], 8
	cbz	x1, call
	str	x0, [x1]
	b	result

compare:
	ldp	x1, x2, [x19, 8]
	ldr	x1, [x1]
	mov	x0, -116		// ESTALE
	cmp	x1, x2
	bne	failed
	add	x19, x19, 64
	b	call

ready:
	ldr	x2, [sp]		// argc
	add	x2, sp, x2, lsl 3
	add	x2, x2, 16		// environment
	ldr	x0, [sp, 16]
	add	x1, sp, 24
	mov	x8, 221			// execve
	svc	0

failed:
	stp	x19, x0, [sp, -16]!
	mov	x0, 6
	mov	x1, sp
	mov	x2, 16
	mov	x8, 64			// write
	svc	0
	mov	x0, 127
	mov	x8, 94			// exit_group
	svc	0
	.balign	8
