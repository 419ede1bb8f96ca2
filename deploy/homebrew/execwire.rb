class Execwire < Formula
  desc "Run processes and serve files for remote programs"
  homepage "https://github.com/execwire/execwire"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "@URL@/execwire_@VERSION@_darwin_arm64.tar.gz"
      sha256 "@SHA256_DARWIN_ARM64@"
    end
    on_intel do
      url "@URL@/execwire_@VERSION@_darwin_amd64.tar.gz"
      sha256 "@SHA256_DARWIN_AMD64@"
    end
  end

  on_linux do
    on_arm do
      url "@URL@/execwire_@VERSION@_linux_arm64.tar.gz"
      sha256 "@SHA256_LINUX_ARM64@"
    end
    on_intel do
      url "@URL@/execwire_@VERSION@_linux_amd64.tar.gz"
      sha256 "@SHA256_LINUX_AMD64@"
    end
  end

  def install
    bin.install "execwire"
    bin.install "execwire-hub" if OS.linux?
    man1.install Dir["man/*.1.gz"]
    bash_completion.install "completions/execwire.bash" => "execwire"
    zsh_completion.install "completions/execwire.zsh" => "_execwire"
    fish_completion.install "completions/execwire.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/execwire --version")
  end
end
