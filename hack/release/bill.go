// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// bill is a bill of materials: a document of SPDX 2.3.
type bill struct {
	document v2_3.Document
	// known are the packages of the document.
	known map[common.ElementID]bool
}

const (
	home    = "https://github.com/kubedevice/kubedevice"
	unknown = "NOASSERTION"
	apache  = "Apache-2.0"
)

// rootID is the element that a document describes.
const rootID = "Package-release"

// newBill returns the bill of a file of a release, whose checksum is SHA-256.
func newBill(r *release, a artifact, checksum string) *bill {
	b := &bill{known: map[common.ElementID]bool{}, document: v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: a.name,
		// Unique to the content.
		DocumentNamespace: fmt.Sprintf("%s/spdx/%s/%s", home, a.name, checksum),
		CreationInfo: &v2_3.CreationInfo{
			Created: r.created.Format(time.RFC3339),
			Creators: []common.Creator{
				{CreatorType: "Organization", Creator: "The KubeDevice Authors"},
				{CreatorType: "Tool", Creator: "kubedevice-release-" + r.version},
			},
		},
	}}
	b.add(&v2_3.Package{
		PackageSPDXIdentifier: rootID, PackageName: a.name, PackageVersion: r.version,
		PackageDownloadLocation: "git+" + home + "@" + strings.TrimSuffix(r.revision, "-dirty"),
		PackageLicenseDeclared:  apache, PrimaryPackagePurpose: a.purpose,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: checksum}},
	})
	b.relate("DOCUMENT", common.TypeRelationshipDescribe, rootID)
	return b
}

// add adds a package, unless one with its identifier is there.
func (b *bill) add(p *v2_3.Package) common.ElementID {
	if b.known[p.PackageSPDXIdentifier] {
		return p.PackageSPDXIdentifier
	}
	b.known[p.PackageSPDXIdentifier] = true
	for _, field := range []*string{
		&p.PackageDownloadLocation, &p.PackageLicenseConcluded, &p.PackageLicenseDeclared, &p.PackageCopyrightText,
	} {
		if *field == "" {
			*field = unknown
		}
	}
	b.document.Packages = append(b.document.Packages, p)
	return p.PackageSPDXIdentifier
}

func (b *bill) relate(from common.ElementID, how string, to common.ElementID) {
	b.document.Relationships = append(b.document.Relationships, &v2_3.Relationship{
		RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to)),
		Relationship: how,
	})
}

// identifier makes an element's identifier of words: SPDX allows letters, digits, dots and dashes.
// A byte that is not allowed is written by its value, so that different words stay different.
func identifier(words ...string) common.ElementID {
	var id strings.Builder
	for i, word := range words {
		if i > 0 {
			id.WriteByte('-')
		}
		for _, c := range []byte(word) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-':
				id.WriteByte(c)
			default:
				fmt.Fprintf(&id, "-%02x-", c)
			}
		}
	}
	return common.ElementID(id.String())
}

// reference is how scanners know a package: by its package URL.
func reference(purl string) []*v2_3.PackageExternalReference {
	return []*v2_3.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl,
	}}
}

// billSuffix ends the name of a bill of materials, after that of what it is of.
const billSuffix = ".spdx.json"

// writeBill writes the bill of materials of an artifact, next to it.
func (r *release) writeBill(a artifact, checksum string) error {
	b := newBill(r, a, checksum)
	for _, m := range a.contents {
		if err := b.addMember(r, m); err != nil {
			return fmt.Errorf("read %s: %w", m.path, err)
		}
	}
	if len(b.document.Packages) == 1 {
		return nil // text alone
	}
	file, err := os.Create(filepath.Join(r.out, a.name+billSuffix))
	if err != nil {
		return err
	}
	return errors.Join(json.Write(&b.document, file, json.Indent(" "), json.EscapeHTML(false)), file.Close())
}

// addMember adds what a file of an artifact consists of.
func (b *bill) addMember(r *release, m member) error {
	content, _, err := m.open()
	if err != nil {
		return err
	}
	defer content.Close()
	if strings.HasPrefix(m.path, debianStatus) {
		text, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return b.addDebian(string(text))
	}
	return b.addProgram(r, m, content)
}
