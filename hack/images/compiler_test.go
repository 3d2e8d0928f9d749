// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// serveArchive makes apt use an archive that has these packages alone, each with what it depends on
// and one file, on a machine on which those named are installed.
func serveArchive(t *testing.T, packages map[string][2]string, installed ...string) {
	t.Helper()
	archive := t.TempDir()
	var index, status strings.Builder
	for name, made := range packages {
		control := fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: %s\nMaintainer: A <a@example.com>\n"+
			"Description: none\n", name, runtime.GOARCH)
		if made[0] != "" {
			control += "Depends: " + made[0] + "\n"
		}
		deb := filepath.Join(archive, name+"_1.deb")
		command(t, "dpkg-deb", "--build", "--root-owner-group",
			write(t, map[string]string{"DEBIAN/control": control, made[1]: "#!/bin/sh\n"}), deb)
		content, err := os.ReadFile(deb)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s_1.deb\nSize: %d\nSHA256: %x\n\n", control, name, len(content),
			sha256.Sum256(content))
		for _, has := range installed {
			if has == name {
				fmt.Fprintf(&status, "%sStatus: install ok installed\n\n", control)
			}
		}
	}
	dir := write(t, map[string]string{
		"status": status.String(), "sources.list": "deb [trusted=yes] copy:" + archive + " ./\n",
	})
	if err := os.WriteFile(filepath.Join(archive, "Packages"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "apt.conf")
	text := fmt.Sprintf("Dir::Etc::SourceList \"%[1]s/sources.list\";\nDir::Etc::SourceParts \"-\";\n"+
		"Dir::State::Status \"%[1]s/status\";\n", dir)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("APT_CONFIG", conf)
}

func TestACompilerIsCompleteOnEveryMachine(t *testing.T) {
	const architecture = "arm64"
	cross := crossCompilers[architecture]
	// One is installed, which may lack the C library's headers.
	programs := write(t, map[string]string{cross.program: "#!/bin/sh\nexit 1\n"})
	if err := os.Chmod(filepath.Join(programs, cross.program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	packages := map[string][2]string{
		cross.packages[0]: {"libexample, libc6", "usr/bin/" + cross.program},
		cross.packages[1]: {"", "usr/aarch64-linux-gnu/include/stdio.h"},
		"libexample":      {"", "usr/lib/x86_64-linux-gnu/libexample.so"},
		"libc6":           {"", "usr/lib/x86_64-linux-gnu/libc.so.6"},
	}
	for name, installed := range map[string][]string{
		"nothing":     nil,
		"headers":     {cross.packages[1]},
		"a library":   {"libexample", "libc6"},
		"all of them": {cross.packages[0], cross.packages[1], "libexample", "libc6"},
	} {
		t.Run(name, func(t *testing.T) {
			serveArchive(t, packages, installed...)
			dir := t.TempDir()
			path, err := compiler(t.Context(), architecture, dir)
			if err != nil || filepath.Dir(path) != dir {
				t.Fatalf("the compiler is %q, %v; want the unpacked one", path, err)
			}
			for name, made := range packages {
				_, err := os.Stat(filepath.Join(dir, "root", made[1]))
				if there, want := err == nil, name != "libc6"; there != want {
					t.Errorf("%s is unpacked: %v, want %v", name, there, want)
				}
			}
		})
	}
}
