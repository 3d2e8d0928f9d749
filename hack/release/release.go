// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// release is what is released, and from which directories.
type release struct {
	version, revision string
	created           time.Time
	architectures     []string
	// key signs, if there is one.
	key *ecdsa.PrivateKey

	sources, programs, kubectl, images, charts string

	// registry is what the chart takes images from; where it is empty, from the nodes themselves.
	registry string

	out string

	// missing is what could not be written, and why.
	missing string
}

// artifact is a file of the release.
type artifact struct {
	name string
	// contents are what is in it, for its bill of materials.
	contents []member
	// purpose is SPDX's word for what the file is.
	purpose string
}

// versions are those that tags of Go modules may have.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// write writes all files of the release, and says what they are.
func (r *release) write(ctx context.Context, out io.Writer) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("version %q: want one such as v1.2.3 or v1.2.3-rc.1", r.version)
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	for _, part := range []struct {
		what string
		make func() error
	}{
		{"programs", r.writePrograms},
		{"kubectl-device", r.writeKubectl},
		{"images", r.writeImages},
		{"Debian packages", r.writePackages},
		{"manifests", r.writeManifests},
		{"chart", r.writeChart},
		{"metadata for Artifact Hub", r.writeMetadata},
		{"release notes", r.writeNotes},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "Writing %s\n", part.what); err != nil {
			return err
		}
		if err := part.make(); err != nil {
			return fmt.Errorf("release %s: %w", part.what, err)
		}
	}
	if err := r.seal(); err != nil {
		return err
	}
	return r.report(out)
}

// add writes a file of the release and, where it contains programs or packages, its bill of
// materials.
func (r *release) add(a artifact, write func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(r.out, a.name))
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := errors.Join(write(io.MultiWriter(file, sum)), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", a.name, err)
	}
	if a.contents == nil {
		return nil
	}
	if err := r.writeBill(a, hex.EncodeToString(sum.Sum(nil))); err != nil {
		return fmt.Errorf("write the bill of materials of %s: %w", a.name, err)
	}
	return nil
}

// addArchive adds a compressed archive of members, in a directory of the archive's name.
func (r *release) addArchive(name string, members []member) error {
	inside := make([]member, 0, len(members)+1)
	for _, m := range append(members, r.licence("LICENSE")) {
		m.path = name + "/" + m.path
		inside = append(inside, m)
	}
	return r.add(artifact{name: name + ".tar.gz", contents: inside, purpose: "ARCHIVE"}, func(w io.Writer) error {
		return writeTarGz(w, inside, r.created)
	})
}

func (r *release) licence(path string) member {
	return member{path: path, mode: 0o644, source: filepath.Join(r.sources, "LICENSE")}
}

// writePrograms writes an archive for each architecture, with both programs and all plugins.
func (r *release) writePrograms() error {
	for _, architecture := range r.architectures {
		members, err := directory(filepath.Join(r.programs, architecture, "plugins"), "plugins")
		if err != nil {
			return err
		}
		for _, program := range []string{"kube-scheduler", "kubecri"} {
			members = append(members, member{
				path: program, mode: 0o755, source: filepath.Join(r.programs, architecture, program),
			})
		}
		if err := r.addArchive(fmt.Sprintf("kubedevice_%s_linux_%s", r.version, architecture), members); err != nil {
			return err
		}
	}
	return nil
}

// writeManifests writes an archive of what is applied, and of units and patches. The chart is an
// archive of its own.
func (r *release) writeManifests() error {
	deploy := filepath.Join(r.sources, "deploy")
	entries, err := os.ReadDir(deploy)
	if err != nil {
		return err
	}
	var all []member
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == "chart" {
			continue
		}
		members, err := directory(filepath.Join(deploy, entry.Name()), "deploy/"+entry.Name())
		if err != nil {
			return err
		}
		all = append(all, members...)
	}
	return r.addArchive("kubedevice_"+r.version+"_deploy", all)
}

// writeChart writes the chart that Helm has packaged, with the release's time: Helm writes that of
// the checkout.
func (r *release) writeChart() error {
	found, err := filepath.Glob(filepath.Join(r.charts, "*.tgz"))
	if err != nil || len(found) == 0 {
		return err
	}
	if len(found) > 1 {
		return fmt.Errorf("%s has %d charts, want one", r.charts, len(found))
	}
	members, err := readTarGz(found[0])
	if err != nil {
		return fmt.Errorf("read %s: %w", found[0], err)
	}
	if r.registry != "" {
		if err := nameRegistry(members, strings.TrimSuffix(r.registry, "/")); err != nil {
			return fmt.Errorf("%s: %w", found[0], err)
		}
	}
	return r.add(artifact{name: filepath.Base(found[0])}, func(w io.Writer) error {
		return writeTarGz(w, members, r.created)
	})
}

// nameRegistry puts a registry in the place of localhost: in the chart's values, and in what
// Artifact Hub reads of it.
func nameRegistry(members []member, registry string) error {
	for file, replaced := range map[string][2]string{
		"kubedevice/values.yaml": {"\n  registry: localhost\n", "\n  registry: " + registry + "\n"},
		"kubedevice/Chart.yaml":  {"image: localhost/", "image: " + registry + "/"},
	} {
		at := slices.IndexFunc(members, func(m member) bool { return m.path == file })
		if at < 0 || !bytes.Contains(members[at].content, []byte(replaced[0])) {
			return fmt.Errorf("%s lacks %q", file, replaced[0])
		}
		members[at].content = bytes.ReplaceAll(members[at].content, []byte(replaced[0]), []byte(replaced[1]))
	}
	return nil
}

// metadataName is the file with what Artifact Hub reads of the chart's repository.
const metadataName = "artifacthub-repo.yml"

func (r *release) writeMetadata() error {
	text, err := os.ReadFile(filepath.Join(r.sources, "deploy", metadataName))
	if err != nil {
		return err
	}
	return r.add(artifact{name: metadataName}, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
