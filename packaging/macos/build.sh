#!/bin/sh
# Signs dist/Outrider.app, packs it as a disk image and has it notarised. Never run: no Mac was at hand.
#
#     packaging/macos/build.sh VERSION
#
# SIGN_IDENTITY names a "Developer ID Application" certificate in the keychain; NOTARY_PROFILE a profile that was made
# once with: xcrun notarytool store-credentials NAME --apple-id ... --team-id ... --password (an app-specific password).
# Without SIGN_IDENTITY the application is signed for this machine only, and Gatekeeper refuses it elsewhere.
set -eu
cd "$(dirname "$0")/../.."
version=$1
app=dist/Outrider.app
image=dist/outrider-$version-macos.dmg
entitlements=packaging/macos/entitlements.plist
if [ -n "${SIGN_IDENTITY:-}" ]; then
    # From the inside out: libraries, then programs, then the bundle.
    find "$app" \( -name '*.so' -o -name '*.dylib' \) -type f -print0 |
        xargs -0 codesign --force --timestamp --options runtime --sign "$SIGN_IDENTITY"
    codesign --force --timestamp --options runtime --entitlements "$entitlements" --sign "$SIGN_IDENTITY" "$app"
else
    codesign --force --deep --sign - "$app"
fi
codesign --verify --deep --strict "$app"
rm -rf build/dmg && mkdir -p build/dmg
cp -R "$app" build/dmg/
ln -s /Applications build/dmg/Applications
hdiutil create -volname Outrider -srcfolder build/dmg -ov -format UDZO "$image"
if [ -n "${NOTARY_PROFILE:-}" ]; then
    codesign --timestamp --sign "$SIGN_IDENTITY" "$image"
    xcrun notarytool submit "$image" --keychain-profile "$NOTARY_PROFILE" --wait
    xcrun stapler staple "$image"
fi
