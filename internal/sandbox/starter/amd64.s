# The starter: the first program inside a sandbox. starter.go says what it does
# and makes an ELF file of it; starter/build assembles it. What it is given:
#
#   argv         its own name, the path of the program, the program's argv
#   environment  the program's, each entry with a dot before it; others are not the program's
#   3, 4, 5      what become 0, 1 and 2
#   6            a pipe to write to: one byte when everything is set up, then only
#                what failed, as the eight bytes of a negative errno
#   7            a ruleset of Landlock
#   restricted   a byte behind the code: 1 if the ruleset counts, else 0
#   sealed       the next byte: 1 if the devices of outside are root's, else 0
#   filter       8 bytes behind restricted, a struct sock_fprog

	.intel_syntax noprefix
	mov	r12, [rsp]		# argc
	lea	r13, [rsp+8]		# argv
	lea	r14, [r13+r12*8+8]	# environment

	cmp	byte ptr [rip+sealed], 0
	je	place

	sub	rsp, 144		# struct stat
	mov	ebx, 3
null:
	mov	edi, ebx		# /dev/null of outside becomes that of inside
	mov	rsi, rsp
	mov	eax, 5			# fstat
	syscall
	test	rax, rax
	js	failed
	mov	eax, [rsp+24]		# st_mode
	and	eax, 0xf000		# S_IFMT
	cmp	eax, 0x2000		# S_IFCHR
	jne	kept
	cmp	qword ptr [rsp+40], 0x103	# st_rdev
	jne	kept
	mov	edi, -100
	lea	rsi, [rip+device]
	mov	edx, 2			# O_RDWR
	xor	r10d, r10d
	mov	eax, 257		# openat
	syscall
	test	rax, rax
	js	failed
	mov	edi, eax
	mov	esi, ebx
	xor	edx, edx
	mov	eax, 292		# dup3
	syscall
	test	rax, rax
	js	failed
kept:
	inc	ebx
	cmp	ebx, 6
	jne	null

place:
	mov	edi, 3
	xor	esi, esi
streams:
	xor	edx, edx
	mov	eax, 292		# dup3(3+i, i, 0)
	syscall
	test	rax, rax
	js	failed
	inc	edi
	inc	esi
	cmp	esi, 3
	jne	streams

	push	0
	mov	rsi, rsp
	mov	edi, 2			# SIG_SETMASK
	xor	edx, edx
	mov	r10d, 8
	mov	eax, 14			# rt_sigprocmask
	syscall
	test	rax, rax
	js	failed

	mov	edi, 3
	mov	esi, -1
	mov	edx, 4			# CLOSE_RANGE_CLOEXEC
	mov	eax, 436		# close_range
	syscall
	test	rax, rax
	js	failed

	mov	rsi, r14
	mov	rdi, r14
entry:
	mov	rax, [rsi]
	add	rsi, 8
	test	rax, rax
	jz	ended
	cmp	byte ptr [rax], '.'
	jne	entry
	inc	rax
	mov	[rdi], rax
	add	rdi, 8
	jmp	entry
ended:
	mov	[rdi], rax

	mov	edi, 38			# PR_SET_NO_NEW_PRIVS
	mov	esi, 1
	xor	edx, edx
	xor	r10d, r10d
	xor	r8d, r8d
	mov	eax, 157		# prctl
	syscall
	test	rax, rax
	js	failed

	xor	ebx, ebx
capability:
	mov	edi, 24			# PR_CAPBSET_DROP
	mov	esi, ebx
	xor	edx, edx
	xor	r10d, r10d
	xor	r8d, r8d
	mov	eax, 157		# prctl, refused without privileges: then
	syscall				# no_new_privs keeps any from coming back
	inc	ebx
	cmp	ebx, 64
	jne	capability

	mov	edi, 47			# PR_CAP_AMBIENT
	mov	esi, 4			# PR_CAP_AMBIENT_CLEAR_ALL
	xor	edx, edx
	xor	r10d, r10d
	xor	r8d, r8d
	mov	eax, 157		# prctl
	syscall
	test	rax, rax
	js	failed

	push	0			# the sets, which are empty
	push	0
	push	0
	mov	rsi, rsp
	mov	eax, 0x20080522		# _LINUX_CAPABILITY_VERSION_3, of this process
	push	rax
	mov	rdi, rsp
	mov	eax, 126		# capset
	syscall
	test	rax, rax
	js	failed

	cmp	byte ptr [rip+restricted], 0
	je	free
	mov	edi, 7
	xor	esi, esi
	mov	eax, 446		# landlock_restrict_self
	syscall
	test	rax, rax
	js	failed
free:

	mov	edi, 1			# SECCOMP_SET_MODE_FILTER
	xor	esi, esi
	lea	rdx, [rip+filter]
	mov	eax, 317		# seccomp
	syscall
	test	rax, rax
	js	failed

	mov	edi, 6
	mov	rsi, rsp
	mov	edx, 1
	mov	eax, 1			# write
	syscall

	mov	rdi, [r13+8]
	lea	rsi, [r13+16]
	mov	rdx, r14
	mov	eax, 59			# execve
	syscall

failed:
	push	rax
	mov	edi, 6
	mov	rsi, rsp
	mov	edx, 8
	mov	eax, 1			# write
	syscall
	mov	edi, 127
	mov	eax, 231		# exit_group
	syscall

device:
	.asciz	"/dev/null"
	.balign	8
restricted:
	.equ	sealed, restricted+1
	.equ	filter, restricted+8
