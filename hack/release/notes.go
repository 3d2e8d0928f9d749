// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// sdk is the module with the SDK, and its directory in the repository.
const (
	sdk          = "github.com/kubedevice/kubedevice/pkg/sdk"
	sdkDirectory = "pkg/sdk"
)

// unreleased is the section of the changelog with what is in no release yet.
const unreleased = "Unreleased"

// relativeLinks are links to files of the repository.
var relativeLinks = regexp.MustCompile(`\]\(([^)#:]+(?:#[^)]*)?)\)`)

// section returns what a changelog says about a version, without the heading, or about what is not
// released if it does not know the version.
func section(changelog, version string) (heading, body string, err error) {
	sections := map[string]string{}
	for _, part := range strings.Split("\n"+changelog, "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		name, _, _ := strings.Cut(heading, " ") // a date may follow
		sections[strings.Trim(name, "[]")] = strings.TrimSpace(body)
	}
	for _, heading := range []string{version, strings.TrimPrefix(version, "v"), unreleased} {
		if body := sections[heading]; body != "" {
			return heading, body, nil
		}
	}
	return "", "", fmt.Errorf("CHANGELOG.md has no section %q and none %q", version, unreleased)
}

// hosts returns the release of Go that built the programs, and the version of the SDK in them.
// Plugins must have the same.
func (r *release) hosts() (toolchain, sdkVersion string, err error) {
	for _, architecture := range r.architectures {
		for _, program := range []string{"kube-scheduler", "kubecri"} {
			path := filepath.Join(r.programs, architecture, program)
			info, err := buildinfo.ReadFile(path)
			if err != nil {
				return "", "", fmt.Errorf("read %s: %w", path, err)
			}
			var found string
			for _, module := range info.Deps {
				if module.Path == sdk {
					found = module.Version
				}
			}
			if found == "" {
				return "", "", fmt.Errorf("%s was built without the SDK", path)
			}
			if toolchain != "" && (toolchain != info.GoVersion || sdkVersion != found) {
				return "", "", fmt.Errorf("%s was built by %s with the SDK %s, other programs by %s with %s", path,
					info.GoVersion, found, toolchain, sdkVersion)
			}
			toolchain, sdkVersion = info.GoVersion, found
		}
	}
	if toolchain == "" {
		return "", "", errors.New("there is no architecture")
	}
	return toolchain, sdkVersion, nil
}

// writeNotes writes the release notes: what changed, what plugins must be built with, and how to
// verify the files.
func (r *release) writeNotes() error {
	changelog, err := os.ReadFile(filepath.Join(r.sources, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	heading, body, err := section(string(changelog), r.version)
	if err != nil {
		return err
	}
	toolchain, sdkVersion, err := r.hosts()
	if err != nil {
		return err
	}
	var notes strings.Builder
	fmt.Fprintf(&notes, "# KubeDevice %s\n\n", r.version)
	if heading == unreleased {
		notes.WriteString("The changelog has no section of this version: these are the changes that it calls " +
			"unreleased.\n\n")
	}
	// Links lead to the files of this release from wherever the notes are published.
	notes.WriteString(relativeLinks.ReplaceAllString(body, "]("+home+"/blob/"+r.version+"/$1)"))
	fmt.Fprintf(&notes, "\n\n## Plugins\n\nPlugins for this release are built by %s, with version %s of the SDK "+
		"(tag %s/%s).\n", toolchain, sdkVersion, sdkDirectory, sdkVersion)
	notes.WriteString("\n## Verify\n\n")
	if r.key == nil {
		notes.WriteString("This release is **unsigned**. Its checksums are in SHA256SUMS.\n")
	} else {
		fmt.Fprintf(&notes, "```\ncosign verify-blob --key %s --signature %s --insecure-ignore-tlog=true %s\n"+
			"sha256sum --check --ignore-missing %s\n```\n", publicName, signatureName, sumsName, sumsName)
	}
	fmt.Fprintf(&notes, "\nRevision %s.\n", r.revision)
	return r.add(artifact{name: "RELEASE_NOTES.md"}, func(w io.Writer) error {
		_, err := io.WriteString(w, notes.String())
		return err
	})
}
