; The installer for Windows, for the present user only: it asks for no administrator.
;
;     python packaging/release.py installer
;
; BUNDLE is what PyInstaller made of packaging/outrider.spec. The uninstaller leaves chats and settings.
; `make wine-bundle` installs and removes it under wine; it was never run on Windows.
Target amd64-unicode
!include "MUI2.nsh"
!include "FileFunc.nsh"
!define KEY "Software\Microsoft\Windows\CurrentVersion\Uninstall\Outrider"
!define CLASSES "Software\Classes"

Name "Outrider"
OutFile "${OUT}"
InstallDir "$LOCALAPPDATA\Programs\Outrider"
InstallDirRegKey HKCU "Software\Outrider" "Folder"
RequestExecutionLevel user
SetCompressor /SOLID lzma
ManifestSupportedOS all
ManifestLongPathAware true
VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "Outrider"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Setup of Outrider"
VIAddVersionKey "LegalCopyright" "The Outrider authors, MIT licence"

!ifdef ICON
  !define MUI_ICON "${ICON}"
  !define MUI_UNICON "${ICON}"
!endif
!define MUI_FINISHPAGE_RUN "$INSTDIR\outrider-app.exe"
!insertmacro MUI_PAGE_LICENSE "${LICENCE}"
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"
!insertmacro MUI_LANGUAGE "German"
LangString OPEN ${LANG_ENGLISH} "Outrider is open. Close it, then start this again."
LangString OPEN ${LANG_GERMAN} "Outrider ist offen. Schließen Sie es und starten Sie dies dann noch einmal."

; A running window holds its libraries open.
!macro RefuseWhileOpen
  ClearErrors
  IfFileExists "$INSTDIR\outrider-app.exe" 0 +5
    FileOpen $0 "$INSTDIR\outrider-app.exe" a
    IfErrors 0 +2
      Abort "$(OPEN)"
    FileClose $0
!macroend

Section "Outrider"
  !insertmacro RefuseWhileOpen
  RMDir /r "$INSTDIR\_internal"  ; what an older version left
  SetOutPath "$INSTDIR"
  File /r "${BUNDLE}\*"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  CreateShortcut "$SMPROGRAMS\Outrider.lnk" "$INSTDIR\outrider-app.exe"
  WriteRegStr HKCU "Software\Outrider" "Folder" "$INSTDIR"
  ; A double-click on a .gguf file opens it, unless the user has chosen another program.
  WriteRegStr HKCU "${CLASSES}\Outrider.gguf" "" "GGUF language model"
  WriteRegStr HKCU "${CLASSES}\Outrider.gguf\DefaultIcon" "" "$INSTDIR\outrider-app.exe,0"
  WriteRegStr HKCU "${CLASSES}\Outrider.gguf\shell\open\command" "" '"$INSTDIR\outrider-app.exe" "%1"'
  WriteRegStr HKCU "${CLASSES}\.gguf\OpenWithProgids" "Outrider.gguf" ""
  ReadRegStr $0 HKCU "${CLASSES}\.gguf" ""
  StrCmp $0 "" 0 +2
    WriteRegStr HKCU "${CLASSES}\.gguf" "" "Outrider.gguf"
  WriteRegStr HKCU "${KEY}" "DisplayName" "Outrider"
  WriteRegStr HKCU "${KEY}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${KEY}" "DisplayIcon" "$INSTDIR\outrider-app.exe"
  WriteRegStr HKCU "${KEY}" "Publisher" "The Outrider authors"
  WriteRegStr HKCU "${KEY}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${KEY}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${KEY}" "NoModify" 1
  WriteRegDWORD HKCU "${KEY}" "NoRepair" 1
  ${GetSize} "$INSTDIR" "/S=0K" $0 $1 $2
  WriteRegDWORD HKCU "${KEY}" "EstimatedSize" $0
  System::Call 'shell32::SHChangeNotify(i 0x8000000, i 0, p 0, p 0)'
SectionEnd

Section "Uninstall"
  !insertmacro RefuseWhileOpen
  RMDir /r "$INSTDIR\_internal"
  Delete "$INSTDIR\outrider.exe"
  Delete "$INSTDIR\outrider-app.exe"
  Delete "$INSTDIR\uninstall.exe"
  RMDir "$INSTDIR"
  Delete "$SMPROGRAMS\Outrider.lnk"
  ReadRegStr $0 HKCU "${CLASSES}\.gguf" ""
  StrCmp $0 "Outrider.gguf" 0 +2
    DeleteRegValue HKCU "${CLASSES}\.gguf" ""
  DeleteRegValue HKCU "${CLASSES}\.gguf\OpenWithProgids" "Outrider.gguf"
  DeleteRegKey /ifempty HKCU "${CLASSES}\.gguf\OpenWithProgids"
  DeleteRegKey /ifempty HKCU "${CLASSES}\.gguf"
  DeleteRegKey HKCU "${CLASSES}\Outrider.gguf"
  DeleteRegKey HKCU "${KEY}"
  DeleteRegKey HKCU "Software\Outrider"
  System::Call 'shell32::SHChangeNotify(i 0x8000000, i 0, p 0, p 0)'
SectionEnd
