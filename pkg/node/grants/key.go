// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Annotation is the key under which a container in the runtime carries its own part of its pod's
// allocation. The value is
//
//	v1.<MAC>.<own part, as deviceinfo.EncodeContainer writes it>
//
// The MAC is the HMAC-SHA256, in URL-safe base64, of the node's name, the pod's UID, namespace and
// name, the container's name and the own part, by a key that only this node has. A runtime may take
// annotations of a container from an image, as when it restores a checkpoint: what has no valid MAC
// counts for nothing.
const Annotation = "KubeDevice/Grant"

// encodedVersion begins the annotation.
const encodedVersion = "v1."

// keyName is the name of the file with the node's key, in the checkpoint's directory.
const keyName = "grant-key"

// keyBytes is the length of a key, that of the hash.
const keyBytes = sha256.Size

// Why a container's annotation does not count.
var (
	errUnsigned = errors.New("it has no signature of this node, as releases before this one wrote none")
	errForged   = errors.New("its signature is not this node's for this pod and container")
)

// nodeKey is the key that signs what containers carry.
type nodeKey struct {
	file  *statefile.File
	node  string
	saved bool
	keyContent
}

// keyContent is the JSON of the key's file.
type keyContent struct {
	Key []byte `json:"key"`
	// Since is when the key was made. No container that is older carries its signature.
	Since time.Time `json:"since"`
}

func newNodeKey(directory, node string) *nodeKey {
	return &nodeKey{
		file: &statefile.File{Path: filepath.Join(directory, keyName), Kind: keyName}, node: node,
	}
}

// load reads the key, or makes one where there is none that can be used. An error says that the
// file cannot be read now: it may have the key.
func (k *nodeKey) load(ctx context.Context) error {
	err := k.file.Load(func(body []byte) (err error) {
		k.keyContent, err = decodeKey(body)
		return err
	})
	k.saved = err == nil
	if k.saved {
		return nil
	}
	lost := errors.Is(err, statefile.ErrCorrupt)
	if !lost && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the key that signs the containers' annotations: %w; if that stays, move the file "+
			"away, and a new one is made", err)
	}
	k.keyContent = keyContent{make([]byte, keyBytes), time.Now().UTC()}
	rand.Read(k.Key) // never fails
	logger := klog.FromContext(ctx)
	if !lost {
		logger.Info("Made a key that signs the containers' annotations about their devices")
	} else {
		logger.Error(err, "The key that signs the containers' annotations about their devices is lost, and made "+
			"again. The checkpoint of granted devices still counts; without it, what older containers hold would not "+
			"be known")
	}
	if err := k.save(); err != nil {
		logger.Error(err, "The new key cannot be written yet")
	}
	return nil
}

// save writes the key unless that was done.
func (k *nodeKey) save() error {
	if k.saved {
		return nil
	}
	if err := k.file.Save(k.keyContent); err != nil {
		return fmt.Errorf("write the key that signs the containers' annotations: %w", err)
	}
	k.saved = true
	return nil
}

func decodeKey(body []byte) (keyContent, error) {
	var c keyContent
	if err := json.Unmarshal(body, &c); err != nil {
		return keyContent{}, err
	}
	if len(c.Key) != keyBytes {
		return keyContent{}, fmt.Errorf("the key has %d bytes, not %d", len(c.Key), keyBytes)
	}
	return c, nil
}

// subject is whose part of an allocation is signed.
type subject struct {
	podUID, namespace, podName, container string
}

// mac returns the MAC of the subject's own part.
func (k *nodeKey) mac(s subject, part string) []byte {
	mac := hmac.New(sha256.New, k.Key)
	for _, field := range []string{
		Annotation, encodedVersion, k.node, s.podUID, s.namespace, s.podName, s.container, part,
	} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		mac.Write(length[:])
		mac.Write([]byte(field))
	}
	return mac.Sum(nil)
}

// sign returns the value of the annotation.
func (k *nodeKey) sign(s subject, part string) string {
	return encodedVersion + base64.RawURLEncoding.EncodeToString(k.mac(s, part)) + "." + part
}

// verify returns the own part that the annotation has, and whether it is that of an init container.
// An error other than errUnsigned and errForged is about something that this node has signed.
func (k *nodeKey) verify(s subject, annotation string) (part types.ContainerInfo, init bool, err error) {
	signed, ok := strings.CutPrefix(annotation, encodedVersion)
	if !ok {
		return types.ContainerInfo{}, false, errUnsigned
	}
	text, own, _ := strings.Cut(signed, ".")
	mac, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || !hmac.Equal(mac, k.mac(s, own)) {
		return types.ContainerInfo{}, false, errForged
	}
	return deviceinfo.DecodeContainer(own)
}
