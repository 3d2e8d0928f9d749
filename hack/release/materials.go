// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// debianStatus is where images say which packages of Debian they have.
const debianStatus = "var/lib/dpkg/status.d/"

// addProgram adds a program or plugin that Go built, with its modules; other files it leaves out.
func (b *bill) addProgram(r *release, m member, content io.Reader) error {
	sum, head := sha256.New(), make([]byte, 4)
	n, err := io.ReadFull(content, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if !isProgram(head[:n]) {
		return nil
	}
	sum.Write(head)
	var rest bytes.Buffer
	if _, err := io.Copy(io.MultiWriter(sum, &rest), content); err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(append(head, rest.Bytes()...)))
	if err != nil {
		// Such as the C library, which is part of a package of Debian.
		return nil
	}
	purpose := "APPLICATION"
	if strings.HasSuffix(m.path, ".so") {
		purpose = "LIBRARY"
	}
	program := b.add(&v2_3.Package{
		PackageSPDXIdentifier: identifier("Program", m.path), PackageName: path.Base(m.path), PackageFileName: m.path,
		PackageVersion: r.version, PackageLicenseDeclared: apache, PrimaryPackagePurpose: purpose,
		PackageSourceInfo: info.Path,
		PackageChecksums:  []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum.Sum(nil))}},
	})
	b.relate(rootID, common.TypeRelationshipContains, program)
	for _, module := range modules(info) {
		b.relate(program, common.TypeRelationshipDependsOn, b.add(module))
	}
	if strings.HasPrefix(path.Base(m.path), "kubectl-device") {
		return b.addPage(r, program)
	}
	return nil
}

// isProgram reports whether a file begins as programs of Linux, macOS or Windows do.
func isProgram(head []byte) bool {
	return slices.ContainsFunc([]string{"\x7fELF", "\xcf\xfa\xed\xfe", "MZ"}, func(magic string) bool {
		return bytes.HasPrefix(head, []byte(magic))
	})
}

// modules returns what a program was built from: Go's own library and modules, but for those of
// this repository, which are what is released.
func modules(info *debug.BuildInfo) []*v2_3.Package {
	version, _, _ := strings.Cut(info.GoVersion, " ")
	number := strings.TrimPrefix(version, "go")
	packages := []*v2_3.Package{{
		PackageSPDXIdentifier: identifier("Go", "stdlib", number), PackageName: "stdlib", PackageVersion: number,
		PackageLicenseDeclared: "BSD-3-Clause", PackageExternalReferences: reference("pkg:golang/stdlib@" + number),
	}}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if strings.HasPrefix(module.Path, ".") { // a module of this repository
			continue
		}
		packages = append(packages, &v2_3.Package{
			PackageSPDXIdentifier: identifier("Go", module.Path, module.Version), PackageName: module.Path,
			PackageVersion: module.Version, PackageSourceInfo: "go.sum: " + module.Sum,
			PackageExternalReferences: reference("pkg:golang/" + module.Path + "@" + module.Version),
		})
	}
	return packages
}

// addPage adds what the page of the map consists of, which kubectl-device embeds if it was built.
func (b *bill) addPage(r *release, program common.ElementID) error {
	page := filepath.Join(r.sources, "pkg", "kubectl", "web", "ui")
	if _, err := os.Stat(filepath.Join(page, "dist", "app.js")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(page, "package.json"))
	if err != nil {
		return err
	}
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return fmt.Errorf("package.json of the page: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(manifest.Dependencies)) {
		version := manifest.Dependencies[name]
		b.relate(program, common.TypeRelationshipDependsOn, b.add(&v2_3.Package{
			PackageSPDXIdentifier: identifier("Npm", name, version), PackageName: name, PackageVersion: version,
			PackageExternalReferences: reference("pkg:npm/" + name + "@" + version),
		}))
	}
	return nil
}

// addDebian adds a package of Debian from its control file.
func (b *bill) addDebian(control string) error {
	fields := map[string]string{}
	for line := range strings.Lines(control) {
		if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
			fields[name] = strings.TrimSpace(value)
		}
	}
	name, version, architecture := fields["Package"], fields["Version"], fields["Architecture"]
	if name == "" || version == "" || architecture == "" {
		return errors.New("it lacks Package, Version or Architecture")
	}
	b.relate(rootID, common.TypeRelationshipContains, b.add(&v2_3.Package{
		PackageSPDXIdentifier: identifier("Debian", name, version), PackageName: name, PackageVersion: version,
		PackageExternalReferences: reference(fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-12", name,
			strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version), architecture)),
	}))
	return nil
}
