// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keycommand is the command that makes and rotates the keys of seals: kubecri seal-keys,
// which is also available as kubectl device seal-keys.
package keycommand

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

// The names of the files in a directory of keys; Secret and ConfigMap have the same keys.
const (
	privateKeysFile  = "private.pem"
	certificatesFile = "certificates.pem"
)

// The names of the objects that distribute the keys.
const (
	privateKeysSecret     = "kubedevice-seal-key"
	certificatesConfigMap = "kubedevice-seal-certificates"
)

// New returns the command. client returns the client for making keys in a cluster; the other
// subcommands need no client.
func New(client func() (corev1client.CoreV1Interface, error)) *cobra.Command {
	command := &cobra.Command{
		Use:   "seal-keys",
		Short: "Make and rotate the keys with which the scheduler seals allocations",
		Long: "Make and rotate the keys with which the scheduler seals allocations, in a directory of two files:\n" +
			"  " + privateKeysFile + "       for kube-scheduler --device-seal-key; keep it secret\n" +
			"  " + certificatesFile + "  for the nodes\n" +
			"Run it where you administer the cluster. Private keys are printed with -o yaml only, as a Secret.",
		Args: cobra.NoArgs,
	}
	command.AddCommand(
		newVerb("create", "Make the first key", func(dir directory, now time.Time) (keyRing, error) {
			_, err := os.Lstat(filepath.Join(dir.path, privateKeysFile))
			if err == nil {
				return keyRing{}, fmt.Errorf("directory %s has keys already: add one with %s rotate", dir.path,
					dir.command)
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return keyRing{}, err
			}
			if err := os.MkdirAll(dir.path, 0o700); err != nil {
				return keyRing{}, err
			}
			return keyRing{}.withNewKey(now)
		}),
		newVerb("rotate", "Add a key that signs from now on; the others stay valid",
			func(dir directory, now time.Time) (keyRing, error) {
				ring, err := dir.read()
				if err != nil {
					return keyRing{}, err
				}
				return ring.withNewKey(now)
			}),
		newVerb("prune", "Remove all keys but the one that signs", func(dir directory, _ time.Time) (keyRing, error) {
			ring, err := dir.read()
			if err != nil {
				return keyRing{}, err
			}
			return ring.pruned(), nil
		}),
		newVerb(setMode, "State another seal mode of the cluster, --"+modeFlag+", and keep the keys",
			func(dir directory, _ time.Time) (keyRing, error) { return dir.read() }),
		newVerb("list", "Print the keys", func(dir directory, _ time.Time) (keyRing, error) { return dir.read() }),
		newEnsure(client),
	)
	return command
}

// setMode is the verb that changes the mode alone, and modeFlag the flag that names the mode.
const (
	setMode  = "set-mode"
	modeFlag = "seal-mode"
)

// newVerb returns a command that prints the result of change for its directory, and writes it there
// unless it only lists the keys.
func newVerb(verb, short string, change func(dir directory, now time.Time) (keyRing, error)) *cobra.Command {
	format, namespace, bundle, publicOnly := "table", metav1.NamespaceSystem, "", false
	var mode seal.Mode
	command := &cobra.Command{
		Use:   verb + " DIRECTORY",
		Short: short,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%d arguments: name one directory of keys; see %s --help", len(args),
					command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if format != "table" && format != "yaml" {
				return fmt.Errorf("--output %q: want table or yaml", format)
			}
			if verb == setMode && mode == "" {
				return fmt.Errorf("name the mode with --%s", modeFlag)
			}
			dir := directory{args[0], command.Parent().CommandPath()}
			ring, err := change(dir, time.Now())
			if err != nil {
				return err
			}
			ring.mode = cmp.Or(mode, ring.mode)
			if verb != "list" {
				if err := dir.write(ring); err != nil {
					return err
				}
			}
			if format == "table" {
				return ring.printTable(command.OutOrStdout())
			}
			return ring.printManifests(command.OutOrStdout(), namespace, bundle, publicOnly)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&format, "output", "o", format, "table, or yaml: the Secret "+privateKeysSecret+" and the "+
		"ConfigMap "+certificatesConfigMap+", for kubectl apply -f -")
	flags.StringVarP(&namespace, "namespace", "n", namespace, "with -o yaml: namespace of Secret and ConfigMap")
	flags.StringVar(&bundle, "trust-bundle", bundle, "with -o yaml: name of a ClusterTrustBundle to print, too, which "+
		"Kubernetes serves from 1.37 on")
	flags.Var(&mode, modeFlag, "seal mode of the cluster that the keys state, and that the scheduler and the nodes "+
		"use without a flag of their own: off, warn or enforce. Without, the keys state what they stated before")
	flags.BoolVar(&publicOnly, "public-only", publicOnly, "with -o yaml: leave out the Secret. Nodes need a new "+
		"certificate before the scheduler signs with its key")
	return command
}

// directory is a directory of keys. command is the command that makes it, for errors.
type directory struct{ path, command string }

// keyRing is the content of a directory of keys.
type keyRing struct {
	private      []ed25519.PrivateKey // the first one signs
	certificates []*x509.Certificate  // in the same order; there may be more
	mode         seal.Mode            // of the cluster, which both files state; "" for none
}

// withNewKey returns the keys with a new one that signs.
func (r keyRing) withNewKey(now time.Time) (keyRing, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return keyRing{}, err
	}
	certificate, err := seal.NewCertificate(key, now)
	if err != nil {
		return keyRing{}, err
	}
	return keyRing{slices.Insert(r.private, 0, key), slices.Insert(r.certificates, 0, certificate), r.mode}, nil
}

// pruned returns only the key that signs.
func (r keyRing) pruned() keyRing { return keyRing{r.private[:1], r.certificates[:1], r.mode} }

// privateText returns the content of the file of private keys.
func (r keyRing) privateText() ([]byte, error) {
	text, err := seal.EncodePrivateKeys(r.private)
	return r.mode.State(text), err
}

// certificatesText returns the content of the file of certificates.
func (r keyRing) certificatesText() []byte {
	return r.mode.State(seal.EncodeCertificates(r.certificates))
}

// read reads the keys. Each private key must have its certificate.
func (d directory) read() (keyRing, error) {
	explain := func(file string, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: make it with %s create", err, d.command)
		}
		return fmt.Errorf("%s: %w: restore it from a copy", filepath.Join(d.path, file), err)
	}
	text, err := os.ReadFile(filepath.Join(d.path, privateKeysFile))
	if err != nil {
		return keyRing{}, explain(privateKeysFile, err)
	}
	private, err := seal.ParsePrivateKeys(text)
	if err != nil {
		return keyRing{}, explain(privateKeysFile, err)
	}
	if text, err = os.ReadFile(filepath.Join(d.path, certificatesFile)); err != nil {
		return keyRing{}, explain(certificatesFile, err)
	}
	certificates, err := seal.ParseCertificates(text)
	if err != nil {
		return keyRing{}, explain(certificatesFile, err)
	}
	mode, err := seal.StatedMode(text)
	if err != nil {
		return keyRing{}, explain(certificatesFile, err)
	}
	ordered := make([]*x509.Certificate, 0, len(certificates))
	for _, key := range private {
		public := key.Public().(ed25519.PublicKey)
		index := slices.IndexFunc(certificates, func(c *x509.Certificate) bool { return public.Equal(c.PublicKey) })
		if index < 0 {
			err := fmt.Errorf("it lacks the certificate of key %s", seal.KeyID(public))
			return keyRing{}, explain(certificatesFile, err)
		}
		ordered = append(ordered, certificates[index])
		certificates = slices.Delete(certificates, index, index+1)
	}
	return keyRing{private, append(ordered, certificates...), mode}, nil
}

// write writes the keys into both files. It writes certificates first: a certificate without a key
// does no harm.
func (d directory) write(r keyRing) error {
	private, err := r.privateText()
	if err != nil {
		return err
	}
	if err := replaceFile(d.path, certificatesFile, r.certificatesText(), 0o644); err != nil {
		return err
	}
	return replaceFile(d.path, privateKeysFile, private, 0o600)
}

// replaceFile replaces the content of a file in one step, as readers may have it open.
func replaceFile(directory, name string, content []byte, mode fs.FileMode) (err error) {
	file, err := os.CreateTemp(directory, name+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(directory, name))
}

// printTable prints the keys' IDs, and nothing secret.
func (r keyRing) printTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tCREATED\tUSE")
	for i, key := range seal.CertificateKeys(r.certificates) {
		use := "valid"
		switch {
		case i == 0:
			use = "signs"
		case i >= len(r.private):
			use = "valid on nodes, without a private key"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", seal.KeyID(key), r.certificates[i].NotBefore.UTC().Format(time.RFC3339), use)
	}
	if r.mode != "" {
		fmt.Fprintf(table, "seal mode of the cluster: %s\n", r.mode)
	}
	return table.Flush()
}

// printManifests prints the objects that distribute the keys.
func (r keyRing) printManifests(out io.Writer, namespace, bundle string, publicOnly bool) error {
	certificates := string(r.certificatesText())
	objects := []any{&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certificatesConfigMap},
		Data:       map[string]string{certificatesFile: certificates},
	}}
	if bundle != "" {
		objects = append(objects, &certificatesv1.ClusterTrustBundle{
			TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "ClusterTrustBundle"},
			ObjectMeta: metav1.ObjectMeta{Name: bundle},
			Spec:       certificatesv1.ClusterTrustBundleSpec{TrustBundle: certificates},
		})
	}
	if !publicOnly {
		private, err := r.privateText()
		if err != nil {
			return err
		}
		objects = append(objects, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: privateKeysSecret},
			Type:       corev1.SecretTypeOpaque,
			Data:       map[string][]byte{privateKeysFile: private},
		})
	}
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "---\n%s", text)
	}
	return nil
}
