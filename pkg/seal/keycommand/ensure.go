// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package keycommand

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// keyObjects are the objects with the keys.
type keyObjects struct {
	namespace, secret, configMap string
	// existing says that the administrator has made them.
	existing bool
	// command is the command that makes keys in a directory, for errors.
	command string
}

// newEnsure returns the command that makes the missing objects of keys.
func newEnsure(client func() (corev1client.CoreV1Interface, error)) *cobra.Command {
	o := keyObjects{namespace: metav1.NamespaceSystem, secret: privateKeysSecret, configMap: certificatesConfigMap}
	command := &cobra.Command{
		Use: "ensure", Short: "Make Secret and ConfigMap of the first key in a cluster, unless they are there",
		Long: "Make Secret and ConfigMap of the first key in a cluster, unless they are there. A hook of the chart " +
			"runs this before it is installed or upgraded. It does not change existing keys.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			objects, err := client()
			if err != nil {
				return err
			}
			o.command = command.Parent().CommandPath()
			return o.ensure(command.Context(), objects, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", o.namespace, "namespace of both")
	flags.StringVar(&o.secret, "secret", o.secret, "name of the Secret, with "+privateKeysFile)
	flags.StringVar(&o.configMap, "config-map", o.configMap, "name of the ConfigMap, with "+certificatesFile)
	flags.BoolVar(&o.existing, "existing", o.existing, "make nothing: both must be there")
	return command
}

// ensure makes the objects, or checks existing ones.
func (o *keyObjects) ensure(ctx context.Context, client corev1client.CoreV1Interface, out io.Writer) error {
	private, err := o.private(ctx, client)
	if err != nil {
		return err
	}
	certificates, err := o.certificates(ctx, client)
	if err != nil {
		return err
	}
	secret, configMap := o.namespace+"/"+o.secret, o.namespace+"/"+o.configMap
	switch {
	case private == nil && o.existing:
		return fmt.Errorf("Secret %s does not exist: make it with %s create and list ("+documents.URL+"use/seals.md), "+
			"or set seals.keys to generate", secret, o.command)
	case certificates == nil && o.existing:
		return fmt.Errorf("ConfigMap %s does not exist: %s list DIRECTORY -o yaml prints it", configMap, o.command)
	case private == nil && certificates != nil:
		return fmt.Errorf("the key is lost: ConfigMap %s has its certificate, and Secret %s is gone; restore the "+
			"Secret from a copy, or go through \"A key is lost\" of "+documents.URL+"use/seals.md, and delete the "+
			"ConfigMap for a new key", configMap, secret)
	case private == nil:
		return o.create(ctx, client, out)
	case certificates == nil:
		fmt.Fprintf(out, "ConfigMap %s is made again from Secret %s\n", configMap, secret)
		return o.createCertificates(ctx, client, private)
	}
	signs := private[0].Public().(ed25519.PublicKey)
	if !slices.ContainsFunc(certificates, func(c *x509.Certificate) bool { return signs.Equal(c.PublicKey) }) {
		return fmt.Errorf("ConfigMap %s lacks the certificate of the key %s, with which the scheduler would sign: "+
			"nodes would refuse its pods; add it ("+documents.URL+"use/seals.md)", configMap, seal.KeyID(signs))
	}
	fmt.Fprintf(out, "the key %s is kept\n", seal.KeyID(signs))
	return nil
}

// private reads the Secret; nil means that there is none.
func (o *keyObjects) private(ctx context.Context, client corev1client.CoreV1Interface) ([]ed25519.PrivateKey, error) {
	secret, err := client.Secrets(o.namespace).Get(ctx, o.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, err := seal.ParsePrivateKeys(secret.Data[privateKeysFile])
	if err != nil {
		return nil, fmt.Errorf("Secret %s/%s: %s: %w: restore it from a copy", o.namespace, o.secret, privateKeysFile,
			err)
	}
	return keys, nil
}

// certificates reads the ConfigMap; nil means that there is none.
func (o *keyObjects) certificates(
	ctx context.Context, client corev1client.CoreV1Interface,
) ([]*x509.Certificate, error) {
	configMap, err := client.ConfigMaps(o.namespace).Get(ctx, o.configMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	certificates, err := seal.ParseCertificates([]byte(configMap.Data[certificatesFile]))
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %s: %w: restore it from a copy", o.namespace, o.configMap,
			certificatesFile, err)
	}
	return certificates, nil
}

// create makes a key and both objects. The Secret comes first: a certificate without a key would
// look like a lost key.
func (o *keyObjects) create(ctx context.Context, client corev1client.CoreV1Interface, out io.Writer) error {
	ring, err := keyRing{}.withNewKey(time.Now())
	if err != nil {
		return err
	}
	text, err := seal.EncodePrivateKeys(ring.private)
	if err != nil {
		return err
	}
	_, err = client.Secrets(o.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.secret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{privateKeysFile: text},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the key %s is made\n", seal.KeyID(ring.private[0].Public().(ed25519.PublicKey)))
	return o.createCertificates(ctx, client, ring.private)
}

// createCertificates makes the ConfigMap for the keys.
func (o *keyObjects) createCertificates(ctx context.Context, client corev1client.CoreV1Interface,
	private []ed25519.PrivateKey) error {
	var certificates []*x509.Certificate
	var failed error
	for _, key := range private {
		certificate, err := seal.NewCertificate(key, time.Now())
		certificates, failed = append(certificates, certificate), errors.Join(failed, err)
	}
	if failed != nil {
		return failed
	}
	_, err := client.ConfigMaps(o.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.configMap},
		Data:       map[string]string{certificatesFile: string(seal.EncodeCertificates(certificates))},
	}, metav1.CreateOptions{})
	return err
}
