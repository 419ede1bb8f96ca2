# The preparer: it makes system calls and becomes bubblewrap. preparation.go says
# what for; starter/build assembles it. What it is given:
#
#   argv         its own name, the path of a program, the program's argv
#   environment  the program's
#   6            a pipe to write to if a call fails: where the call is, and the
#                negative errno, as eight bytes each
#   7            a file, which is mapped where calls point to
#
# The file begins with the address of the first call. A call is eight words: its
# number; its arguments; and where the addresses are of the places for its result,
# behind the last of which is 0. The number -1 is behind the last call, and -2 that
# of a comparison: it fails with ESTALE unless the word that the first argument
# points to is the second.

	.intel_syntax noprefix
	mov	edi, 7
	xor	esi, esi
	mov	edx, 2			# SEEK_END
	mov	eax, 8			# lseek
	syscall
	test	rax, rax
	js	failed

	mov	rsi, rax
	mov	edi, 0x10000000
	mov	edx, 3			# PROT_READ, PROT_WRITE
	mov	r10d, 0x12		# MAP_PRIVATE, MAP_FIXED
	mov	r8d, 7
	xor	r9d, r9d
	mov	eax, 9			# mmap
	syscall
	test	rax, rax
	js	failed

	mov	rbx, [rax]
call:
	mov	rax, [rbx]
	cmp	rax, -1
	je	ready
	cmp	rax, -2
	je	compare
	mov	rdi, [rbx+8]
	mov	rsi, [rbx+16]
	mov	rdx, [rbx+24]
	mov	r10, [rbx+32]
	mov	r8, [rbx+40]
	mov	r9, [rbx+48]
	syscall
	test	rax, rax
	js	failed
	mov	rsi, [rbx+56]
	add	rbx, 64
result:
	mov	rdi, [rsi]
	test	rdi, rdi
	jz	call
	mov	[rdi], rax
	add	rsi, 8
	jmp	result

compare:
	mov	rdi, [rbx+8]
	mov	rdi, [rdi]
	mov	rax, -116		# ESTALE
	cmp	rdi, [rbx+16]
	jne	failed
	add	rbx, 64
	jmp	call

ready:
	mov	rcx, [rsp]		# argc
	lea	rdx, [rsp+rcx*8+16]	# environment
	mov	rdi, [rsp+16]
	lea	rsi, [rsp+24]
	mov	eax, 59			# execve
	syscall

failed:
	push	rax
	push	rbx
	mov	edi, 6
	mov	rsi, rsp
	mov	edx, 16
	mov	eax, 1			# write
	syscall
	mov	edi, 127
	mov	eax, 231		# exit_group
	syscall
	.balign	8
